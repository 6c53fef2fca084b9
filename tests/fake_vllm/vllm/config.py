import enum


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def kinds(self) -> tuple["CUDAGraphMode", "CUDAGraphMode"]:
        """Of decode batches and of mixed ones."""
        decode, mixed = self.value if isinstance(self.value, tuple) else (self.value, self.value)
        return CUDAGraphMode(decode), CUDAGraphMode(mixed)

    def __str__(self) -> str:
        return self.name
