"""A right answer to the task `tdd_password`."""


class PasswordValidator:
    RULES = (
        ("Password must be at least 8 characters", lambda text: len(text) >= 8),
        ("Password must contain at least one uppercase letter", lambda text: any(map(str.isupper, text))),
        ("Password must contain at least one lowercase letter", lambda text: any(map(str.islower, text))),
        ("Password must contain at least one digit", lambda text: any(map(str.isdigit, text))),
        (
            "Password must contain at least one special character (!@#$%^&*)",
            lambda text: any(character in "!@#$%^&*" for character in text),
        ),
    )

    def validate(self, password):
        errors = [message for message, keeps in self.RULES if not keeps(password)]
        return not errors, errors
