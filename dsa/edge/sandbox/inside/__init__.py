"""What runs on the other side: these modules are sent as text to a process of their own, with nothing else of this package.

They import the standard library and each other only, and know nothing that the untrusted code may not know: it runs in a fork of them.
"""
