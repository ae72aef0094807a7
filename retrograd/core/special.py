"""Special functions of real arrays in NumPy alone: error functions, normal law, gamma family.

Every public function takes what np.asarray takes and returns an ndarray of the broadcast shape.
Float types are kept: all is computed in float64 and rounded once; integers become float64.
NumPy's floating-point warnings are not silenced here: that is the caller's to decide.

The coefficient tables are near-minimax fits (interpolation at Chebyshev nodes in 60-digit
arithmetic), highest power first; the comment above each gives variable, range and truncation
error.  The variables are those in which the coefficients of a rational fit are of one sign, or
nearly so: Horner's rule then loses no digits to cancellation.

Errors in the docstrings are the largest over some 1e4 float64 points against 40 digits; 99 in
100 are within 4 ulps.  A sum whose terms cancel, near its zeros, has the errors of its terms.
"""

import math

import numpy as np

# Large enough to hide the cost of NumPy calls, small enough for temporaries to stay in cache.
_BLOCK = 1 << 15

# fmt: off
# erf(x) / x - 1 in x**2, for |x| <= 1; truncation error 8e-18 of erf.
_ERF = (
    -7.795898827002142e-10, 1.3720064546777686e-08, -1.6208483801871705e-07,
    1.6447424703317362e-06, -1.492473690741966e-05, 0.00012055294904839707,
    -0.0008548325975389692, 0.0052239776071164225, -0.02686617064323777, 0.11283791670945006,
    -0.37612638903183543, 0.12837916709551256,
)
# (x + 2) exp(x**2) erfc(x) in 1 / (x + 2), for x >= 1/2 up to infinity; 1.3e-17.
_ERFCX = (
    (329.2562008194827, 536.5207343091116, 567.6819098669977, 401.8908037893806,
     299.9003304203509, 110.5432950868661, 82.11136167069192, 11.738092721332682,
     11.238722916106514, 0.32582692612786296, 0.5641895835477563),
    (37.1895101171694, -16.76694777312319, 203.24301938590176, -69.23750200306972,
     260.9757654647595, -62.955302657082456, 115.96571583716849, -17.74625118119069,
     19.26509133201507, -1.4224868100559354, 1.0),
)
# erfinv(y) / y in 9/16 - y**2, for |y| <= 3/4; 2.2e-18.
_INV_CENTRE = (
    (0.004629517836199464, 0.31730417194039606, 3.408658782601145, 12.832151510619875,
     21.727106021614006, 18.039487150473597, 7.160921199707379, 1.0845597967968248),
    (0.030108495873496597, 0.8535064285470091, 6.247619308964538, 18.607684554381887,
     26.78300806716227, 19.70783200731746, 7.121354241112377, 1.0),
)
# erfcinv(p) - t with t = sqrt(-log p), in t - 1 for 1.17 <= t <= 4; 2.7e-17 of erfcinv.
_INV_MIDDLE = (
    (-2.4443513096985096e-05, -0.0018632497185941245, -0.03299231465690986,
     -0.22620551614423598, -0.7312811525198928, -1.218023021046124, -1.0450310067227249,
     -0.36328386278150954),
    (7.45791315950547e-06, 0.0008578647240841778, 0.021175681749921765, 0.20245588387404823,
     0.9452213071815537, 2.407276647763534, 3.5127901866311246, 2.816113533219338, 1.0),
)
# The same difference in t - 4, for 4 <= t <= 27.3 (the smallest denormal p); 5.3e-18.
_INV_FAR = (
    (-6.581608911282258e-12, -4.2718451136044695e-09, -6.242255169335379e-07,
     -3.3937245980702804e-05, -0.0008395511094145841, -0.010382962057588152,
     -0.06603278432521469, -0.20580254394391576, -0.24864065595851742),
    (1.5324106831041683e-12, 1.3400525837235048e-09, 2.443587493146422e-07,
     1.644528172924023e-05, 0.000513328670275938, 0.008344952902817433, 0.07472731554018434,
     0.37080754968644203, 0.9558193960350809, 1.0),
)
# log(gamma(1 + z)) / (z (z - 1)) in z, for 0 <= z <= 2; 4.1e-18.
_LGAMMA = (
    (1.54621296801624e-07, 0.00010318936786846241, 0.004630212547046027, 0.06620652414372981,
     0.4175253681048576, 1.3226883681228077, 2.1865334418937055, 1.795879018997928,
     0.5772156649015329),
    (2.4701852219090835e-05, 0.0017463681006452904, 0.03613884447121401, 0.3239769173460576,
     1.4771004522959044, 3.6722217552107503, 5.021257900661251, 3.5361659629745215, 1.0),
)
# digamma(1 + z) / (z - root) in z, for 0 <= z <= 1; 4.3e-18.  The root is kept as a sum of two
# doubles, so that the difference keeps its relative accuracy next to it.
_DIGAMMA = (
    (0.00022205476047991614, 0.012282771527360986, 0.1674321822097703, 0.8563282382526716,
     1.7811904023777358, 1.2503801375034054),
    (3.918857595782627e-05, 0.0034081071889811372, 0.06589990402253255, 0.4784894928792091,
     1.5240244625242985, 2.108065926448982, 1.0),
)
_DIGAMMA_ROOT = (0.46163214496836236, -1.5522348162858677e-17)

# B_2, B_4, ..., B_24, and the coefficients of the three asymptotic series made of them.
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)
# fmt: on
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1))[::-1]
_STIRLING_CONSTANT = 0.5 * math.log(2 * math.pi) - 0.5
_DIGAMMA_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1))[::-1]
_EULER_MACLAURIN = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1))


def _lift(kernel, *args):
    """Apply a kernel on flat float64 blocks to broadcast arguments, keeping the float dtype."""
    # Python scalars stay so: NumPy promotes them weakly, so that zeta(2.0, float32) is float32.
    operands = [a if isinstance(a, (int, float)) else np.asarray(a) for a in args]
    dtype = np.result_type(*operands)
    if dtype.kind == "c":
        raise TypeError(f"special functions are of real arguments here, got {dtype}")
    dtype = np.dtype(np.float64) if dtype.kind in "biu" else dtype
    arrays = np.broadcast_arrays(*operands)
    flat = [a.reshape(-1) for a in arrays]
    out = np.empty(flat[0].size, dtype)
    for start in range(0, out.size, _BLOCK):
        cut = slice(start, start + _BLOCK)
        out[cut] = kernel(*(f[cut].astype(np.float64, copy=False) for f in flat))
    return out.reshape(arrays[0].shape)


def _elementwise(kernel):
    """Decorate a kernel on flat float64 blocks into a function of arrays."""

    def lifted(*args) -> np.ndarray:
        """Stand in for the kernel, whose docstring replaces this one."""
        return _lift(kernel, *args)

    lifted.__name__ = lifted.__qualname__ = kernel.__name__
    lifted.__doc__, lifted.__dict__["__wrapped__"] = kernel.__doc__, kernel
    return lifted


def _horner(coefficients, x):
    """Evaluate a polynomial, highest power first, in a fresh array."""
    acc = x * coefficients[0]
    acc += coefficients[1]
    for c in coefficients[2:]:
        acc *= x
        acc += c
    return acc


def _ratio(table, x):
    """Evaluate a rational function given as (numerator, denominator)."""
    return _horner(table[0], x) / _horner(table[1], x)


def _choose(mask, x, inside, outside):
    """Apply one kernel where the mask holds and another elsewhere, each to its share only."""
    if mask.all():
        return inside(x)
    if not mask.any():
        return outside(x)
    rest = ~mask
    out = np.empty_like(x)
    out[mask] = inside(x[mask])
    out[rest] = outside(x[rest])
    return out


def _erf_centre(x):
    """Compute erf for |x| <= 1."""
    # Adding a correction to x itself costs one rounding where scaling x would cost two.
    return x + x * _horner(_ERF, x * x)


def _scaled_erfc(a):
    """Compute exp(a**2) erfc(a) for a >= 1/2, infinity included."""
    b = a + 2.0
    t = 1.0 / b
    return _horner(_ERFCX[0], t) / (_horner(_ERFCX[1], t) * b)


def _erf_tail(x):
    """Compute erf for |x| >= 1, where the rounding of x**2 does not matter."""
    a = np.abs(x)
    return np.copysign(1.0 - np.exp(-a * a) * _scaled_erfc(a), x)


def _erfc(x, factor):
    """Compute erfc(x sqrt(factor)) for factor 1 or 1/2."""
    root = math.sqrt(factor)

    def tail(v):
        """Compute it where |v| root >= 1/2."""
        a = np.abs(v)
        # A rounded square would cost a**2 / 2 ulps of the exponential.  Split a into a head
        # whose square is exact and a rest; past 40 the exponential is zero all the same.
        b = np.minimum(a, 40.0)
        head = np.rint(b * 1024.0) / 1024.0
        rest = (head - b) * (head + b)
        upper = np.exp(-factor * (head * head)) * np.exp(factor * rest) * _scaled_erfc(a * root)
        return np.where(v < 0, 2.0 - upper, upper)

    return _choose(np.abs(x) * root < 0.5, x, lambda v: 1.0 - _erf_centre(v * root), tail)


def _inverse_centre(y):
    """Compute erfinv for |y| <= 3/4."""
    return y * _ratio(_INV_CENTRE, 0.5625 - y * y)


def _inverse_tail(p, side):
    """Compute erfcinv for p <= 1/4, with the sign of side: infinite at zero and nan below."""
    t = np.sqrt(-np.log(p))
    middle, far = lambda v: _ratio(_INV_MIDDLE, v - 1.0), lambda v: _ratio(_INV_FAR, v - 4.0)
    return np.copysign(np.where(p == 0.0, np.inf, t + _choose(t < 4.0, t, middle, far)), side)


@_elementwise
def erf(x) -> np.ndarray:
    """Return the error function, to 1.5 ulps."""
    return _choose(np.abs(x) < 1.0, x, _erf_centre, _erf_tail)


@_elementwise
def erfc(x) -> np.ndarray:
    """Return 1 - erf(x), to 7 ulps also where it is tiny, denormals included."""
    return _erfc(x, 1.0)


@_elementwise
def erfinv(y) -> np.ndarray:
    """Return the x with erf(x) = y, to 4 ulps; infinite at -1 and 1, nan beyond them."""
    centre = np.abs(y) <= 0.75
    return _choose(centre, y, _inverse_centre, lambda v: _inverse_tail(1.0 - np.abs(v), v))


@_elementwise
def erfcinv(p) -> np.ndarray:
    """Return the x with erfc(x) = p, to 5 ulps; infinite at 0 and 2, nan beyond them."""
    y = 1.0 - p
    # The fit of the tails takes p, or 2 - p, exact there, and not the rounded 1 - p.
    tail = _inverse_tail(np.minimum(p, 2.0 - p), y)
    return np.where(np.abs(y) <= 0.75, _inverse_centre(y), tail)


@_elementwise
def ndtr(x) -> np.ndarray:
    """Return the standard normal distribution function, to 7 ulps also in its low tail."""
    # The square in the exponent is that of x itself, not of x sqrt(1/2), already rounded.
    return 0.5 * _erfc(-x, 0.5)


@_elementwise
def log_ndtr(x) -> np.ndarray:
    """Return log(ndtr(x)), to 7 ulps in both tails, where ndtr itself is 0 or 1."""

    def low(v):
        """Add two negative terms: nothing cancels and nothing underflows."""
        return np.log(0.5 * _scaled_erfc(v * -math.sqrt(0.5))) - 0.5 * v * v

    def high(v):
        """Keep the digits of the complement where ndtr is near 1."""
        tail = ndtr(-np.abs(v))
        return np.where(v < 0, np.log(tail), np.log1p(-tail))

    return _choose(x < -1.0, x, low, high)


@_elementwise
def ndtri(p) -> np.ndarray:
    """Return the x with ndtr(x) = p, to 5 ulps; infinite at 0 and 1, nan beyond them."""
    # Subtracting from zero keeps ndtri(1/2) a positive zero.
    return 0.0 - math.sqrt(2.0) * erfcinv(2.0 * p)


@_elementwise
def expit(x) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), to 3 ulps also in its low tail, where exp(-x) overflows."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _gammaln_low(a):
    """Compute log(gamma) for 0 <= a < 8."""
    # Bring [3, 8) down to [2, 3) by whole steps, all of them exact in floating point.
    steps = np.maximum(np.floor(a) - 2.0, 0.0)
    base = a - steps
    product = np.ones_like(a)
    for j in range(int(np.fmax.reduce(steps, initial=0.0))):
        product *= np.where(j < steps, base + j, 1.0)
    # Below 1, gamma(a) = gamma(1 + a) / a; the fit then takes a itself, free of rounding.
    below = a < 1.0
    z = np.where(below, a, base - 1.0)
    fit = z * (z - 1.0) * _ratio(_LGAMMA, z)
    return fit + np.where(below, -np.log(a), np.log(product))


def _gammaln_high(a):
    """Compute log(gamma) for a >= 8 by Stirling's series."""
    w = 1.0 / a
    # Grouped as a product with log(a) - 1 so that only a true overflow overflows.
    return (a - 0.5) * (np.log(a) - 1.0) + (_STIRLING_CONSTANT + w * _horner(_STIRLING, w * w))


@_elementwise
def gammaln(x) -> np.ndarray:
    """Return log|gamma|, inf at poles; to 5 ulps for x > 0, else to 3 of its largest term."""
    a = np.abs(x)
    out = _choose(a >= 8.0, a, _gammaln_high, _gammaln_low)
    negative = x < 0
    if negative.any():
        b = a[negative]
        r = b - np.rint(b)
        # |gamma(-b)| gamma(1 + b) = pi / |sin(pi b)|.  r sinc(r) = sin(pi r) / pi holds its
        # digits down to the denormals and vanishes at the poles, for an infinite result.
        mirrored = -np.log(np.abs(r) * np.sinc(r)) - np.log(b) - out[negative]
        out[negative] = np.where(b >= 2.0**52, np.inf, mirrored)
    return out


def _digamma_low(z):
    """Compute digamma(1 + z) for 0 <= z < 8."""
    steps = np.floor(z)
    f = z - steps
    out = ((f - _DIGAMMA_ROOT[0]) - _DIGAMMA_ROOT[1]) * _ratio(_DIGAMMA, f)
    for j in range(1, int(np.fmax.reduce(steps, initial=0.0)) + 1):
        out += np.where(j <= steps, 1.0 / (f + j), 0.0)
    return out


def _digamma_high(z):
    """Compute digamma(1 + z) for z >= 8 by its asymptotic series."""
    w = 1.0 / z
    u = w * w
    return np.log(z) + (0.5 * w - u * _horner(_DIGAMMA_SERIES, u))


@_elementwise
def digamma(x) -> np.ndarray:
    """Return gamma'/gamma, nan at poles; to 5 ulps for x > 0, else to 4 of its largest term."""
    # All goes through digamma(1 + z), whose argument suffers no rounding where |x| < 1.
    a = np.abs(x)
    negative = x < 0
    z = np.where(negative | (a < 1.0), a, a - 1.0)
    out = _choose(z >= 8.0, z, _digamma_high, _digamma_low)
    out -= np.where((a < 1.0) & ~negative, 1.0 / a, 0.0)
    if negative.any():
        r = a[negative] - np.rint(a[negative])
        mirrored = out[negative] + math.pi / np.tan(math.pi * r)
        out[negative] = np.where(r == 0.0, np.nan, mirrored)
    return np.where(x == 0.0, np.nan, out)  # a pole like the others, whatever its sign


def _scaled_zeta(s, q):
    """Compute q**(s - 1) zeta(s, q) by Euler-Maclaurin summation, for s > 1 and q > 0."""
    # Free of the power, the sum is near 1 / q + 1 / (s - 1) and cannot underflow; and its terms
    # (1 + k/q)**-s, taken as exp(-t), are off by t exp(-t) ulps only, whatever s.
    shift = 8
    total = 1.0 + sum(np.exp(-s * np.log1p(k / q)) for k in range(1, shift))
    weight = np.exp(-s * np.log1p(shift / q))
    w = 1.0 / (q + shift)
    acc = _EULER_MACLAURIN[-1]
    for k in range(len(_EULER_MACLAURIN) - 1, 0, -1):
        acc = acc * ((s + (2 * k - 1)) * w) * ((s + 2 * k) * w) + _EULER_MACLAURIN[k - 1]
    tail = weight * ((1.0 + shift / q) / (s - 1.0) + (0.5 + acc * (s * w)) / q)
    # A weight of zero may meet an overflowed series: their product is zero, not nan.
    return total / q + np.where(weight > 0, tail, 0.0)


@_elementwise
def zeta(s, q) -> np.ndarray:
    """Return Hurwitz's sum over k >= 0 of (q + k)**-s, to 5 ulps; nan for s < 1 or q < 0."""
    q = q + 0.0  # makes -0 a plain 0, whose infinity is positive
    out = np.power(q, 1.0 - s) * _scaled_zeta(s, q)
    return np.where((q < 0) | (s < 1), np.nan, out)


def polygamma(n, x) -> np.ndarray:
    """Return the n-th derivative of digamma, n <= 1000, to 5 ulps of its largest term."""
    if n < 0 or int(n) != n:
        raise ValueError(f"polygamma needs an integer order n >= 0, got {n!r}")
    if n == 0:
        return digamma(x)
    s, odd, power = n + 1.0, n % 2 == 1, int(n)
    sign = 1.0 if odd else -1.0
    # n! = mantissa * 2**exponent: neither it nor a power of x may overflow on its own.
    factorial = math.factorial(power)
    exponent = factorial.bit_length()
    mantissa = factorial / (1 << exponent)

    def right(v):
        """Compute sign * n! * zeta(n + 1, v) for v > 0."""
        head, binary = np.frexp(v)
        scaled = np.power(head, -float(n)) * (sign * mantissa * _scaled_zeta(s, v))
        return np.ldexp(scaled, exponent - binary * power)

    def left(v):
        """Compute the rest from the sum of (v + k)**-s over all integers k."""
        r = -v - np.rint(-v)
        u = np.abs(r)
        whole = zeta(s, u) + sign * zeta(s, 1.0 - u)
        # A pole makes it infinite: +inf for odd n, but 0 * inf = nan where the sides disagree.
        side = 1.0 if odd else np.sign(r)
        out = np.ldexp(mantissa * (side * whole - zeta(s, 1.0 - v)), exponent)
        # Even orders cancel at half-integers, and what is left may be too small for zeta.
        return np.where(whole == 0.0, right(1.0 - v), out)

    return _lift(lambda v: _choose(v > 0, v, right, left), x)
