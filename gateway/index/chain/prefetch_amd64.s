#include "textflag.h"

// func prefetchSlots(slots *slot, n int, hashes *uint64, count int)
TEXT ·prefetchSlots(SB), NOSPLIT, $0-32
	MOVQ slots+0(FP), DI
	MOVQ n+8(FP), R8
	MOVQ hashes+16(FP), SI
	MOVQ count+24(FP), CX
	MOVQ $0x9e3779b97f4a7c15, R9 // golden

next:
	MOVQ  (SI), AX
	IMULQ R9, AX
	MULQ  R8 // the high half, DX, is the home slot
	SHLQ  $4, DX // of 16 bytes
	PREFETCHT0 (DI)(DX*1)
	PREFETCHT0 32(DI)(DX*1) // a probe, or a removal, that begins late in a line ends in the next
	ADDQ $8, SI
	DECQ CX
	JNZ  next
	RET

// func prefetchWord(word *uint64)
TEXT ·prefetchWord(SB), NOSPLIT, $0-8
	MOVQ word+0(FP), AX
	PREFETCHT0 (AX)
	RET
