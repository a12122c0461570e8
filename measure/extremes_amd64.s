#include "textflag.h"

// REDUCE leaves in the lowest part of X what OP makes of the eight parts of Y.
#define REDUCE(OP, OPS, Y, X) \
	VEXTRACTF128 $1, Y, X8; \
	OP X8, X, X; \
	VPERMILPD $1, X, X8; \
	OP X8, X, X; \
	VMOVSHDUP X, X8; \
	OPS X8, X, X

// func swingFMA(s *swing, x, y *Count, n, runs int, total *float32, d *distance)
//
// Eight scans at a time: p = (ix·x + iy·y)·(v + vy·y) + vi·y, of counts less x0 and y0,
// added to total; least, greatest and sum of p join those of a run's d.
TEXT ·swingFMA(SB), NOSPLIT, $0-56
	MOVQ s+0(FP), AX
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI
	MOVQ n+24(FP), BX
	MOVQ runs+32(FP), R9
	MOVQ total+40(FP), DX
	MOVQ d+48(FP), R8
	VBROADCASTSS 0(AX), Y0   // ix
	VBROADCASTSS 4(AX), Y1   // iy
	VBROADCASTSS 8(AX), Y2   // v
	VBROADCASTSS 12(AX), Y3  // vy
	VBROADCASTSS 16(AX), Y4  // vi
	VPBROADCASTD 20(AX), Y12 // x0
	VPBROADCASTD 24(AX), Y13 // y0
run:
	VBROADCASTSS 0(R8), Y5
	VBROADCASTSS 4(R8), Y6
	VXORPS Y7, Y7, Y7
	LEAQ (SI)(BX*4), SI
	LEAQ (DI)(BX*4), DI
	LEAQ (DX)(BX*4), DX
	MOVQ BX, CX
	NEGQ CX
eight:
	VMOVDQU (SI)(CX*4), Y8
	VMOVDQU (DI)(CX*4), Y9
	VPSUBD Y12, Y8, Y8
	VPSUBD Y13, Y9, Y9
	VCVTDQ2PS Y8, Y8
	VCVTDQ2PS Y9, Y9
	VMULPS Y1, Y9, Y10
	VFMADD231PS Y0, Y8, Y10  // ix·x + iy·y
	VMOVAPS Y2, Y11
	VFMADD231PS Y3, Y9, Y11  // v + vy·y
	VMULPS Y11, Y10, Y10
	VFMADD231PS Y4, Y9, Y10
	VADDPS (DX)(CX*4), Y10, Y11
	VMOVUPS Y11, (DX)(CX*4)
	VMINPS Y10, Y5, Y5
	VMAXPS Y10, Y6, Y6
	VADDPS Y10, Y7, Y7
	ADDQ $8, CX
	JNZ eight
	REDUCE(VMINPS, VMINSS, Y5, X5)
	VMOVSS X5, 0(R8)
	REDUCE(VMAXPS, VMAXSS, Y6, X6)
	VMOVSS X6, 4(R8)
	REDUCE(VADDPS, VADDSS, Y7, X7)
	VADDSS 8(R8), X7, X7
	VMOVSS X7, 8(R8)
	ADDQ $12, R8
	DECQ R9
	JNZ run
	VZEROUPPER
	RET

// Eight values of up to eight bits are in one word: values 0, 1, 4 and 5 are shifted
// to the bottom of four quarters, 2, 3, 6 and 7 to those of four others, and one
// shuffle puts them in order.
DATA firsts<>+0(SB)/8, $0
DATA firsts<>+8(SB)/8, $1
DATA firsts<>+16(SB)/8, $4
DATA firsts<>+24(SB)/8, $5
GLOBL firsts<>(SB), RODATA|NOPTR, $32

// PLAN leaves the shifts of values of W bits at A (0, 1, 4, 5) and B (2, 3, 6, 7), and
// their mask in M.
#define PLAN(W, A, B, X, Y, XM, M) \
	VMOVQ W, X; \
	VPBROADCASTQ X, Y; \
	VPMULUDQ firsts<>(SB), Y, Y9; \
	VMOVDQU Y9, A; \
	VPADDQ Y, Y9, Y9; \
	VPADDQ Y, Y9, Y9; \
	VMOVDQU Y9, B; \
	MOVQ $1, AX; \
	MOVQ W, CX; \
	SHLQ CX, AX; \
	DECQ AX; \
	VMOVQ AX, XM; \
	VPBROADCASTD XM, M

// UNPACK leaves eight values at P, less X0, in Y as floats.
#define UNPACK(P, A, B, M, X0, Y, T) \
	VPBROADCASTQ (P), Y; \
	VPSRLVQ A, Y, T; \
	VPSRLVQ B, Y, Y; \
	VSHUFPS $0x88, Y, T, Y; \
	VPAND M, Y, Y; \
	VPSUBD X0, Y, Y; \
	VCVTDQ2PS Y, Y

// func swingPackedFMA(s *swing, x *byte, xw uint, y *byte, yw uint, total *float32, d *distance)
TEXT ·swingPackedFMA(SB), NOSPLIT, $128-56
	MOVQ s+0(FP), R10
	MOVQ x+8(FP), SI
	MOVQ xw+16(FP), R11
	MOVQ y+24(FP), DI
	MOVQ yw+32(FP), R12
	MOVQ total+40(FP), DX
	MOVQ d+48(FP), R8
	PLAN(R11, 0(SP), 32(SP), X8, Y8, X12, Y12)
	PLAN(R12, 64(SP), 96(SP), X8, Y8, X13, Y13)
	VBROADCASTSS 0(R10), Y0   // ix
	VBROADCASTSS 4(R10), Y1   // iy
	VBROADCASTSS 8(R10), Y2   // v
	VBROADCASTSS 12(R10), Y3  // vy
	VBROADCASTSS 16(R10), Y4  // vi
	VPBROADCASTD 20(R10), Y14 // x0
	VPBROADCASTD 24(R10), Y15 // y0
	MOVQ $2, R9
run:
	VBROADCASTSS 0(R8), Y5
	VBROADCASTSS 4(R8), Y6
	VXORPS Y7, Y7, Y7
	MOVQ $16, CX
eight:
	UNPACK(SI, 0(SP), 32(SP), Y12, Y14, Y8, Y10)
	UNPACK(DI, 64(SP), 96(SP), Y13, Y15, Y9, Y11)
	VMULPS Y1, Y9, Y10
	VFMADD231PS Y0, Y8, Y10  // ix·x + iy·y
	VMOVAPS Y2, Y11
	VFMADD231PS Y3, Y9, Y11  // v + vy·y
	VMULPS Y11, Y10, Y10
	VFMADD231PS Y4, Y9, Y10
	VADDPS (DX), Y10, Y11
	VMOVUPS Y11, (DX)
	VMINPS Y10, Y5, Y5
	VMAXPS Y10, Y6, Y6
	VADDPS Y10, Y7, Y7
	ADDQ R11, SI
	ADDQ R12, DI
	ADDQ $32, DX
	DECQ CX
	JNZ eight
	REDUCE(VMINPS, VMINSS, Y5, X5)
	VMOVSS X5, 0(R8)
	REDUCE(VMAXPS, VMAXSS, Y6, X6)
	VMOVSS X6, 4(R8)
	REDUCE(VADDPS, VADDSS, Y7, X7)
	VADDSS 8(R8), X7, X7
	VMOVSS X7, 8(R8)
	ADDQ $12, R8
	DECQ R9
	JNZ run
	VZEROUPPER
	RET

// func boundsAVX(total *float32, n int, d *distance)
TEXT ·boundsAVX(SB), NOSPLIT, $0-24
	MOVQ total+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ d+16(FP), R8
	VBROADCASTSS 0(R8), Y5
	VBROADCASTSS 4(R8), Y6
eight:
	VMOVUPS (DX), Y8
	VMINPS Y8, Y5, Y5
	VMAXPS Y8, Y6, Y6
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ eight
	REDUCE(VMINPS, VMINSS, Y5, X5)
	VMOVSS X5, 0(R8)
	REDUCE(VMAXPS, VMAXSS, Y6, X6)
	VMOVSS X6, 4(R8)
	VZEROUPPER
	RET
