"""The sandbox's inner side: modules that are sent as text to a process of their own, without the rest of this package.

They import only the standard library and each other, and hold nothing secret: untrusted code runs in a fork of them.
"""
