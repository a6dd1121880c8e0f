"""The sandbox's inner side: modules that are sent as text to a process of their own, without the rest of this package.

They import the standard library and each other only, and have nothing that untrusted code may not know: it runs in a fork of them.
"""
