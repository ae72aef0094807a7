"""Why a row misses what was aimed at, as its profile shows; printed only while it misses.

By the kind of CPU on which that was seen (`machine.kind`); kernels by how their names begin.
"""

from __future__ import annotations

SLOW = (
    "The seconds of a first call, and of the step that it contains, are those of this CPU: 1.6 "
    "to 2.5 times those of the machine that the README shows."
)
STEPS: dict[str, dict[str, str]] = {
    "AMD avx512": {
        "f2": "A first call does the work of a step, which takes 0.14 s while the machine is "
        "fast and about twice that while it is slow; the rest is 0.05 s, as in f1.",
        "q": "All of it is memory: 28 bytes for a number, 700 MB in a step, and the arithmetic "
        "alone would take a third of the time. While the machine was fast 7.1 to 7.4 ms where "
        "PyTorch took 7.4 to 7.7, while it was slow 11.8 to 12.2 and 10.9 to 12.0.",
    },
    "Intel avx512": {
        "f2": "A first call does the work of a step, which takes 0.20 s here at best; f1, the "
        "same program for other sizes, takes 0.05 s in all.",
    },
    "Intel narrow avx512": {
        "e2": "0.13 s of it are a step, which a first call does too; e1, the same program for "
        "fewer steps, takes 0.15 s in all. Neighbours were busy in most minutes (see micro).",
        "f2": "0.31 s of it are a step; f1, the same program for other sizes, takes 0.10 s.",
        "j": "0.302 s, of which a step, which a first call does too, is 0.08 s at best.",
    },
    "AMD avx2": dict.fromkeys(("b", "e2", "e4", "e6", "g", "j", "p"), SLOW)
    | {
        "c2": f"{SLOW} torch.compile took half of what it took for c1: it found kernels for "
        "the same weights in a cache that rows shared then. Now each has its own."
    },
}

AMD = {
    "GEMM 512": "A is read where it is, a few numbers of a row at a time; packed, as larger "
    "ones are, tn reaches 0.73 in place of 0.87, tt 0.70 in place of 0.83",
    "GEMM": "packing takes 7 % (1024 nn) to 10 % (2048 tn) of the samples, as each chunk of "
    "rows packs its columns anew; to fix: columns packed once for all threads",
    "batched GEMM 512 x 16": "each multiply-add has a load of its own, and after 16 steps of "
    "k all is stored; to fix: two products abreast",
    "batched GEMM": "results are stored after 32 steps of k; not profiled further",
    "silu": "arithmetic: from a near cache it is hardly faster. On the EPYC seven "
    "multiply-adds, a division (two turns) and a store (one and a half, as it takes the way of "
    "a third operand) are 10.3 cycles a vector; at 100 GB/s memory gives one in 9.2",
    "softmax": "arithmetic: thirteen operations a vector, of which the EPYC does about 1.5 a "
    "cycle: 8.9 cycles, where memory at 110 GB/s gives one in 8.6; both at once lose a little. "
    "An exp whose largest result is not exactly 1 would need two operations fewer",
    "transpose, 4096": "rows are apart by 16 KiB: all lines of a column lie in one of eight "
    "channels of memory and in one set of the first cache. In C the same order of squares "
    "reaches 0.88 to 0.91 of a copy, and 0.97 if it writes in order. To write two neighbouring "
    "lines at a time would be enough (0.96), but through a buffer it takes longer (0.75)",
    "sum over rows": "its limit is partly of the third cache, from which one row after the "
    "other without calls reaches 0.97; from memory that takes 1.4 times as long (4096 x 4096)",
    "transpose": "squares write 16 lines, each of another row, in a burst past the caches; in "
    "C a copy in such bursts reaches 0.9 of one line by line",
}
FROM_SECOND = (
    "panels come from the second cache and results from the third, which other machines "
    "share: the median turn took up to 40 % longer than the best. "
)
INTEL = {
    "GEMM": f"{FROM_SECOND}Packing takes 3 % (1024 nn) to 6 % (2048 tn) of the samples, as "
    "each chunk packs the rows of A anew, tiles the rest. Larger blocks (1.5 MB), smaller "
    "slabs of A, calls for C a tile ahead change nothing beyond the noise; to fix: rows packed "
    "once for all threads",
    "batched GEMM": "each thread has 1.5 MB of its second cache's 2 to go through; with a "
    "quarter of the products 32^3 reaches 0.94",
    "conv 3x3, 16x56x56x64, weight": "tiles take 98 % of the samples, sums of parts 2 %. A "
    "tile reads 52 of the 256 bytes of a pixel: two lines from the second cache for 26 "
    "multiply-adds; called for 12 pixels ahead, 3 to 5 % less. Bands of half and twice the "
    "rows, and sums that begin with 0, change nothing",
    "conv 3x3": f"{FROM_SECOND}Calls for weights (16 steps) and x (12 pixels) gave 2 to 5 %",
    "transpose": "64 rows are read and 256 bytes of each row written at a time, the best order "
    "of those tried: with 2 squares below each other up to 2 % less, with 3, 5 or 8 a tenth to "
    "a fifth less; staggered, or called for further ahead, the same",
}
BUSY = "busy neighbours, as for 256^3. "
NARROW = {
    "GEMM 256": "a core takes in four instructions a cycle, and in most minutes two, as if a "
    "neighbour ran on its other thread: then the tile alone, all in the first cache, has 0.50 "
    "to 0.57 of the peak, MKL's products 0.52, chains of multiply-adds 0.83 to 0.9; in quiet "
    "ones it has 1. One thread alone reached 0.95 of its peak",
    "GEMM 512^3 t": f"{BUSY}A is read where it is: the lines of its steps are 2 KiB apart, in "
    "two sets of the first cache. Packed, with the same blocks of k, 7 to 9 % less in turns; "
    "to fix: pack from 256 rows on",
    "GEMM 1024": f"{BUSY}Without packing B 6 % less, without packing and calls 9 to 14 %; "
    "tiles of 6 x 4, calls for other lines, and none, are slower",
    "GEMM 2048": f"{BUSY}Without packing B up to 4 % less",
    "GEMM": BUSY.rstrip(". "),
    "batched GEMM": f"{BUSY}Products of 16 and 32 go through most of the second cache of 1 MB, "
    "with few steps of k between loads and stores; not profiled further",
    "conv 3x3": f"{BUSY}By weights 26 of 47 instructions multiply and add; to fix: two pixels "
    "in a turn",
    "transpose": "its limit was reached in a fast second: in turns with it alone copies had "
    "20.5 GB/s and this kernel 19.4",
}
CLOCK = (
    "the clock falls while multiply-adds have loads beside them. In C, from the first cache, "
    "24 in registers have 217 GFLOP/s a thread, with a number loaded for two of them 204, for "
    "each 185, with a vector for each 143; additions right after them are a seventh slower. "
    "MKL's products have 0.76 to 0.83. Tiles of 9 x 3 load a fifth less, and take up to a "
    "tenth longer"
)
SLOWED = {
    "GEMM": CLOCK,
    "batched GEMM": f"{CLOCK}. Few steps of k have more loads and stores to each",
    "conv 3x3": CLOCK,
    "transpose": "32 rows apart by 16 KiB are read, two squares below each other, at a time; "
    "with four 7 % more, with one a fifth more, without calls a quarter more",
}
WIDE = {
    "GEMM": "all of B is packed once, which alone takes 1 % (9 cycles a line, from the third "
    "cache), but waits for memory after the streams of A and C: without it 3 to 4 % less. "
    "Tiles that call for the next block of B change nothing, or make it worse; to fix: B "
    "packed by the tiles of the block before, into a second room",
    "batched GEMM 512 x 16": "what two threads go through is 1.5 MB: of 256 products they have "
    "0.91, of 384 0.92, of 512 0.88, of 1024 0.79, one thread of 128 0.93. 768 KB each are too "
    "much of a second cache of 1 MB, on large pages too (six sets of arrays: 0.79 to 0.9, on "
    "small ones 0.83 to 0.89), and calls for the next products change nothing: what would fix "
    "it is not known",
    "batched GEMM": "1.5 MB for each thread and a second cache of 1 MB: with a quarter of "
    "the products 0.97. Calls for what follows give 1 to 2 %, from one set of arrays to the "
    "next it is 2 to 4",
    "transpose": "arrays lie in fast or in slow memory for as long as a process has them (in "
    "copies 115 to 145 GB/s, or 62): in each it has 0.85 to 0.95 of copies, but in slow memory "
    "half of a limit that was measured in fast",
}
KERNELS: dict[str, dict[str, str]] = {
    "AMD avx512": AMD,
    "AMD wide avx512": WIDE,
    "Intel avx512": INTEL,
    "Intel narrow avx512": NARROW,
    "Intel slowed avx512": SLOWED,
}
