"""The error that every validator in this package raises."""


class WireViolation(AssertionError):
    """Raised if a request breaks a rule of its wire. `rule` is a short id of the rule, such as "A1"."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
