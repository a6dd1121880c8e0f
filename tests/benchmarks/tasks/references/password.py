"""A right answer to the task `password`."""

from collections import Counter


def is_prime(number):
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def validate_password(password):
    if not 12 <= len(password) <= 32:
        return False
    classes = (str.isupper, str.islower, str.isdigit, "!@#$%^&*".__contains__)
    if not all(any(map(belongs, password)) for belongs in classes):
        return False
    if max(Counter(password).values()) > 2:
        return False
    lower = password.lower()
    for first, second, third in zip(lower, lower[1:], lower[2:], strict=False):
        if (first + second + third).isalpha() and ord(third) - ord(second) == ord(second) - ord(first) == 1:
            return False
    return is_prime(sum(int(character) for character in password if character.isdigit()))
