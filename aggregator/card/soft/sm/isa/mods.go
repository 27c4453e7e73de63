package isa

import (
	"slices"
	"strings"
)

// Mod names a modifier of an instruction. Inst.Mod has its value, 0 if the form has none.
type Mod uint8

// The modifiers.
const (
	NoMod      Mod = iota
	Ftz            // denormal inputs and results are zero
	Fmz            // as Ftz, and zero times anything is zero
	Sat            // float: clamp to 0..1; integer: clamp to the type
	Round          // RN, RM, RP, RZ; float to float: plus Integral
	Cmp            // condition of a comparison
	Cond           // condition of the condition code; control flow
	FloatOut       // set: 1.0 instead of all ones
	SetCC          // write the condition code
	UseCC          // add the carry, or chain with the condition code
	NegProduct     // negate a product
	Scale          // multiply a product by a power of two
	Signed         // type of the result, or of all operands
	SignedA        // type of the first factor
	SignedB        // type of the second factor
	High           // upper half of a product; upper half of the flags
	Sum            // add, sub, subr, add plus one
	Logic          // and, or, xor, second operand
	Combine        // and, or, xor with a predicate
	Combine2       // the same, of the two predicates of a set
	Reverse        // reverse the bits first
	Wrap           // shift amounts wrap instead of clamp
	Amount         // bfind: the shift that normalizes
	Chain          // min and max of wide numbers: none, low, medium, high
	Width          // of memory: U8 to B128
	Cache          // cache operator
	Select         // prmt's mode
	RedOp          // operation of an atomic
	Lanes          // mov: lanes of each quad
	Bar            // kind of barrier
	DstType        // integer or float type of a conversion's result
	SrcType        // and of its input
	Part           // byte or half of a conversion's input
	Level          // membar: CTA, GL, SYS; cctl: which cache
	CacheOp        // cctl
	Bounds         // surfaces: what happens outside
	Dims           // surfaces: dimensions
	Limit          // branch at the depth limit
	AllWarp        // branch only if all lanes agree
	Terminate      // rtt
	TexMode        // texture: none, t, p
	Lod            // texture: where the level comes from
	Shadow         // texture: compare with a reference
	Offsets        // texture: with offsets
	Live           // texture: all lanes, or live ones
	DerivAll       // texture: derivatives from all lanes
	Target         // texture: dimensions, 1D to cube array
	Indirect       // texture: handle in the first operand
	Samples        // texture: multisampled
	Clamp          // texture: level clamp
	Query          // texture or surface query, pixel information
	Component      // texture: gathered component
	Quad           // quadop: which lane is the first operand
	QuadOp0        // quadop: operation of each lane
	QuadOp1
	QuadOp2
	QuadOp3
	Patch // graphics
	OutSpace
	InterpMode
	InterpSample
	Emit
	Restart
	Unknown57
	NumMods
)

// Values of modifiers that the executor tells apart.
const (
	RN, RM, RP, RZ, Integral                   = 0, 1, 2, 3, 4
	U8, S8, U16, S16, B32, B64, B128           = 0, 1, 2, 3, 4, 5, 6
	CombineAnd, CombineOr, CombineXor          = 0, 1, 2
	CondTrue                                   = 15
	LogicAnd, LogicOr, LogicXor, LogicB        = 0, 1, 2, 3
	SumAdd, SumSub, SumSubR, SumPlusOne        = 0, 1, 2, 3
	ChainNone, ChainLow, ChainMedium, ChainTop = 0, 1, 2, 3
	BarPopc, BarAnd, BarOr, BarArrive          = 0, 1, 2, 4
)

// A modifier is one way in which forms encode and print a Mod. A value without a text, "!", is
// undefined.
// values, if there are any, are those of the Mod; else it is the number in the field.
type modifier struct {
	mod    Mod
	texts  []string
	values []uint8
}

func flag(m Mod, text string) modifier { return modifier{mod: m, texts: []string{"", text}} }

// value returns the Mod of a number in the field, and number the reverse.
func (m *modifier) value(n uint64) uint8 {
	if m.values != nil {
		return m.values[n]
	}
	return uint8(n)
}

func (m *modifier) number(v uint8) int {
	if m.values != nil {
		return slices.Index(m.values, v)
	}
	return int(v)
}

// list splits texts at spaces; "-" is an empty text, and "~" a space within one.
func list(m Mod, texts string) modifier {
	t := strings.Fields(texts)
	for i := range t {
		t[i] = strings.ReplaceAll(t[i], "~", " ")
		if t[i] == "-" {
			t[i] = ""
		}
	}
	return modifier{mod: m, texts: t}
}

const (
	conditions = "never l e le g lg ge lge u lu eu leu gu lgu geu"
	compares   = "false lt eq le gt ne ge num nan ltu equ leu gtu neu geu true"
)

// modifiers by the names that rows use.
var modifiers = map[string]modifier{
	"ftz": flag(Ftz, "ftz"), "fmz": flag(Fmz, "fmz"), "sat": flag(Sat, "sat"),
	"rnd": list(Round, "rn rm rp rz"), "rndi": list(Round, "rni rmi rpi rzi"), "rndf": list(Round, "- ! ! ! rni rmi rpi rzi"),
	"cmp": list(Cmp, compares), "vcmp": list(Cmp, "false lt eq le gt ne ge true"),
	"cond":  list(Cond, strings.ReplaceAll(conditions, " ", "~$c ")+"~$c - no~$c nc~$c ns~$c na~$c a~$c s~$c c~$c o~$c ! ! ! ! ! ! ! !"),
	"ccond": list(Cond, conditions+" true no nc ns na a s c o ! ! ! ! ! ! ! !"),
	"fout":  list(FloatOut, "b32 f32"),
	"setcc": flag(SetCC, "$c"),
	"usecc": flag(UseCC, "$c"),
	"neg*":  flag(NegProduct, "neg"),
	"scale": list(Scale, "- div2 div4 div8 mul8 mul4 mul2 !"),
	"type":  list(Signed, "u32 s32"),
	"typea": list(SignedA, "u32 s32"),
	"typeb": list(SignedB, "u32 s32"),
	"high":  flag(High, "high"),
	"sum":   list(Sum, "add sub subr addpo"),
	"logic": list(Logic, "and or xor mov2"),
	"comb":  list(Combine, "and or xor !"), "comb2": list(Combine2, "and or xor !"),
	"rev":    flag(Reverse, "rev"),
	"wrap":   list(Wrap, "clamp wrap"),
	"amount": flag(Amount, "shiftamt"),
	"chain":  list(Chain, "- low med high"),
	"width":  list(Width, "u8 s8 u16 s16 b32 b64 b128 !"),
	"ldop":   list(Cache, "ca cg cs cv"),
	"stop":   list(Cache, "wb cg cs wt"),
	"prmt":   list(Select, "- f4e b4e rc8 ecl ecr rc16 !"),
	"redop":  list(RedOp, "add min max inc dec and or xor ! ! ! ! ! ! ! !"),
	"redops": list(RedOp, "add min max ! ! ! ! ! ! ! ! ! ! ! ! !"),
	"lanes":  list(Lanes, "lnone l0 l1 l01 l2 l02 l12 l012 l3 l03 l13 l013 l23 l023 l123 -"),
	"dtype":  list(DstType, "u8 u16 u32 u64 s8 s16 s32 s64"), "dtypef": list(DstType, "! f16 f32 f64"),
	"stype": list(SrcType, "u8 u16 u32 u64 s8 s16 s32 s64"), "stypef": list(SrcType, "! f16 f32 f64"),
	"dtypefi": list(DstType, "! u16 u32 u64 ! s16 s32 s64"),
	"byte":    list(Part, "0x0 0x1 0x2 0x3"), "half": list(Part, "0x0 0x1"),
	"bar": list(Bar, "popc and or ! arrive ! ! !"),
	// Of short forms: types of 16 and 32 bits only, and modes that are always integral.
	"sdtype":   {DstType, []string{"u16", "s16", "u32", "s32"}, []uint8{1, 5, 2, 6}},
	"sstype":   {SrcType, []string{"u16", "s16", "u32", "s32"}, []uint8{1, 5, 2, 6}},
	"s32type":  {SrcType, []string{"u32", "s32"}, []uint8{2, 6}},
	"s32dtype": {DstType, []string{"u32", "s32"}, []uint8{2, 6}},
	"rndfi":    {Round, []string{"rni", "rmi", "rpi", "rzi"}, []uint8{4, 5, 6, 7}},
	"sync":     list(Bar, "sync"), "arrive": list(Bar, "! ! ! ! arrive"),
	"membar":  list(Level, "cta gl sys !"),
	"cachew":  list(Level, "- u c i"),
	"cacheop": list(CacheOp, "query1 pf1 pf15 pf2 wb iv ivall rs"+strings.Repeat(" !", 24)),
	"bounds":  list(Bounds, "zero clamp trap !"),
	"sudim":   list(Dims, "1d 2d 3d e2d"),
	"lim":     flag(Limit, "lim"), "allwarp": flag(AllWarp, "allwarp"), "term": flag(Terminate, "terminate"),
	"texm": list(TexMode, "- t p !"),
	"lod":  list(Lod, "lauto lzero lbias llod ! ! lbiasa lloda"), "lodf": list(Lod, "lzero llod"),
	"shadow": flag(Shadow, "shadow"), "off": flag(Offsets, "off"), "offg": list(Offsets, "- off off8 !"),
	"live": list(Live, "all live"), "deriv": list(DerivAll, "dfp dall"),
	"target": list(Target, "t1d a1d t2d a2d t3d ! tcube acube"),
	"ind":    flag(Indirect, "ind"), "ms": flag(Samples, "ms"), "cl": flag(Clamp, "cl"),
	"tquery": list(Query, "tdims ttype tsamplepos ! ! ! ! ! sfilter slod swrap sbcolor"+strings.Repeat(" !", 52)),
	"squery": list(Query, "rank pixfmt smplsz dim rgba blksz ! !"),
	"pquery": list(Query, "samplecnt covmask covered offset cent_offset sampleid ! !"),
	"rgba":   list(Component, "r g b a"),
	"quad":   list(Quad, "l0 l1 l2 l3 dx dy ! !"),
	"q0":     list(QuadOp0, "add subr sub mov2"), "q1": list(QuadOp1, "add subr sub mov2"),
	"q2": list(QuadOp2, "add subr sub mov2"), "q3": list(QuadOp3, "add subr sub mov2"),
	"patch": flag(Patch, "patch"), "out": flag(OutSpace, "out"), "unk57": flag(Unknown57, "unk39"),
	"imode": list(InterpMode, "pass mul flat sc"), "isample": list(InterpSample, "- cent off !"),
	"vec":  list(Width, "b32 b64 b96 b128"),
	"emit": flag(Emit, "emit"), "restart": flag(Restart, "restart"),
}

func (m Mod) String() string { return strings.Fields(modNames)[m] }

const modNames = `no-mod ftz fmz sat round cmp cond float-out setcc usecc neg-product scale signed signeda signedb
high sum logic combine combine2 reverse wrap amount chain width cache select red-op lanes bar
dst-type src-type part level cache-op bounds dims limit all-warp terminate tex-mode lod shadow
offsets live deriv-all target indirect samples clamp query component quad quad-op0 quad-op1
quad-op2 quad-op3 patch out-space interp-mode interp-sample emit restart unknown57`

// bytes are the sizes of the values of Width. The reserved one counts as the largest.
var bytes = [8]int{1, 1, 2, 2, 4, 8, 16, 16}

// Bytes is how much memory an access of one lane has, by its Width.
func (in *Inst) Bytes() int { return bytes[in.Mod[Width]&7] }
