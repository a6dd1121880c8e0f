"""Right answers to the katas."""

import math


def is_palindrome(text):
    return text == text[::-1]


def factorial(n):
    return math.factorial(n)


def fibonacci(n):
    last, now = 0, 1
    for _ in range(n):
        last, now = now, last + now
    return last


def is_prime(n):
    return n > 1 and all(n % divisor for divisor in range(2, math.isqrt(n) + 1))
