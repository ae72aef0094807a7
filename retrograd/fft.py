"""rg.fft: Fourier transforms: the array API's extension, and two-dimensional ones beside it.

>>> x = rg.asarray([1.0, 2.0, 0.0, -1.0])
>>> bool(rg.allclose(rg.fft.irfft(rg.fft.rfft(x)), x))
True

All are linear: they keep nothing for their gradients, which are transforms again. Gradients of
real numbers are real.
"""

from retrograd.ops.fft.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
