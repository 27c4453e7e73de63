package isa

// Rows of classes 0 (f32), 1 (f64) and 2 (immediates of 32 bits). The opcode is in bits 63:58 or
// 63:59, the class in bits 2:0.

var floatRows = []Row{
	{0x0800000000000000, 0xf80000000000000f, FMinMax, "minmax ftz@5 f32 D setcc@48 neg@9 abs@7 A neg@8 abs@6 Bf"},
	{0x1000000000000000, 0xf00000000000000f, FSet, "set ftz@59 fout@5 D setcc@48 cmp@55 f32 neg@9 abs@7 A neg@8 abs@6 Bf [ comb@53 not@52 P@49 ]"},
	{0x2000000000000000, 0xf00000000000000f, FSetP, "set ftz@59 PD@17 PE@14 cmp@55 f32 neg@9 abs@7 A neg@8 abs@6 Bf [ comb@53 not@52 P@49 ]"},
	{0x3000000000000000, 0xf80000000000000f, FFma, "fma ftz@6 fmz@7 sat@5 rnd@55 f32 D setcc@48 neg@9 A B3f neg@8 C3"},
	{0x3800000000000000, 0xf80000000000000f, FSlct, "slct ftz@5 b32 D A B3f cmp@55 f32 C3"},
	{0x4800000000000000, 0xf80000000000000f, QuadOp, "quadop ftz@5 rnd@55 f32 q0@38 q1@36 q2@34 q3@32 D setcc@48 deriv@9 quad@6 A R"},
	{0x5000000000000000, 0xf80000000000000f, FAdd, "add ftz@5 sat@49 rnd@55 f32 D setcc@48 neg@9 abs@7 A neg@8 abs@6 Bf"},
	{0x5800000000000000, 0xf80000000000000f, FMul, "mul scale@49 fmz@7 ftz@6 sat@5 rnd@55 neg*@57 f32 D setcc@48 A Bf"},
	{0x6000000000000000, 0xf80000000000002f, PreSin, "presin f32 D neg@8 abs@6 Bf"},
	{0x6000000000000020, 0xf80000000000002f, PreEx2, "preex2 f32 D neg@8 abs@6 Bf"},
	{0xc000000000000000, 0xf80000000000000f, Interp, "interp imode@6 sat@5 f32 D isample@8 AT R C"},
	{0xc800000000000000, 0xf80000001c00000f, Cos, "cos sat@5 f32 D neg@9 abs@7 A"},
	{0xc800000004000000, 0xf80000001c00000f, Sin, "sin sat@5 f32 D neg@9 abs@7 A"},
	{0xc800000008000000, 0xf80000001c00000f, Ex2, "ex2 sat@5 f32 D neg@9 abs@7 A"},
	{0xc80000000c000000, 0xf80000001c00000f, Lg2, "lg2 sat@5 f32 D neg@9 abs@7 A"},
	{0xc800000010000000, 0xf80000001c00000f, Rcp, "rcp sat@5 f32 D neg@9 abs@7 A"},
	{0xc800000014000000, 0xf80000001c00000f, Rsqrt, "rsqrt sat@5 f32 D neg@9 abs@7 A"},
	{0xc800000018000000, 0xf80000001c00000f, Rcp64H, "rcp64h sat@5 D neg@9 abs@7 A"},
	{0xc80000001c000000, 0xf80000001c00000f, Rsqrt64H, "rsqrt64h sat@5 D neg@9 abs@7 A"},
}

var doubleRows = []Row{
	{0x0800000000000001, 0xf80000000000000f, DMinMax, "minmax f64 Dd setcc@48 neg@9 abs@7 Ad neg@8 abs@6 Bd"},
	{0x1000000000000001, 0xf80000000000000f, DSet, "set fout@5 D setcc@48 cmp@55 f64 neg@9 abs@7 Ad neg@8 abs@6 Bd [ comb@53 not@52 P@49 ]"},
	{0x1800000000000001, 0xf80000000000000f, DSetP, "set PD@17 PE@14 cmp@55 f64 neg@9 abs@7 Ad neg@8 abs@6 Bd [ comb@53 not@52 P@49 ]"},
	{0x2000000000000001, 0xf80000000000000f, DFma, "fma rnd@55 f64 Dd setcc@48 neg@9 Ad B3d neg@8 C3d"},
	{0x4800000000000001, 0xf80000000000000f, DAdd, "add rnd@55 f64 Dd setcc@48 neg@9 abs@7 Ad neg@8 abs@6 Bd"},
	{0x5000000000000001, 0xf80000000000000f, DMul, "mul rnd@55 neg*@9 f64 Dd setcc@48 Ad Bd"},
}

var wideRows = []Row{
	{0x0000000000000002, 0xf80000000000000f, IMad, "sum@8 D setcc@58 ( mul high@6 typea@7 A typeb@5 L ) V2"},
	{0x0800000000000002, 0xf80000000000000f, IAdd, "sum@8 sat@5 b32 D setcc@58 A L usecc@6"},
	{0x1000000000000002, 0xf80000000000000f, IMul, "mul high@6 D setcc@58 typea@7 A typeb@5 L"},
	{0x1800000000000002, 0xf80000000000000f, Mov, "lanes@5 mov b32 D L"},
	{0x2000000000000002, 0xf80000000000000f, FFma, "fma ftz@6 fmz@7 sat@5 f32 D setcc@58 neg@9 A L neg@8 V2"},
	{0x2800000000000002, 0xf80000000000000f, FAdd, "add ftz@5 f32 D setcc@58 neg@9 abs@7 A L"},
	{0x3000000000000002, 0xf80000000000000f, FMul, "mul fmz@7 ftz@6 sat@5 f32 D setcc@58 A L"},
	{0x3800000000000002, 0xf80000000000000f, Logical, "logic@6 b32 D setcc@58 not@9 A not@8 L usecc@5"},
	{0x4000000000000002, 0xf80000000000000f, IShlAdd, "add b32 D setcc@58 ( shl A N2@5:5 ) L"},
}
