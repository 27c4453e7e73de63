package engine

// The headers leave out a few methods that the hardware takes: nouveau writes
// most of them when it initialises a context, and Mesa's driver writes
// CSAA_ENABLE. Names, lengths: envytools rnndb/graph/gf100_3d.xml and
// gf100_compute.xml, which hold nothing else for GF100 that the headers lack.
var (
	extra9097 = []Method{
		{Offset: 0x02c0, Stride: 0, Count: 1, Name: "UNK02C0", Mask: 0xffffffff},
		{Offset: 0x0750, Stride: 0, Count: 1, Name: "UNK0750", Mask: 0xffffffff},
		{Offset: 0x0760, Stride: 4, Count: 4, Name: "UNK0760", Mask: 0xffffffff},
		{Offset: 0x0770, Stride: 4, Count: 3, Name: "UNK0770", Mask: 0xffffffff},
		{Offset: 0x0780, Stride: 4, Count: 4, Name: "UNK0780", Mask: 0xffffffff},
		{Offset: 0x07d0, Stride: 4, Count: 3, Name: "UNK07D0", Mask: 0xffffffff},
		{Offset: 0x1444, Stride: 0, Count: 1, Name: "UNK1444", Mask: 0xffffffff},
		{Offset: 0x1448, Stride: 0, Count: 1, Name: "UNK1448", Mask: 0xffffffff},
		{Offset: 0x144c, Stride: 0, Count: 1, Name: "UNK144C", Mask: 0xffffffff},
		{Offset: 0x15b4, Stride: 0, Count: 1, Name: "CSAA_ENABLE", Mask: 0x00000001},
		{Offset: 0x1a24, Stride: 0, Count: 1, Name: "DELAY", Mask: 0xffffffff},
	}
	extra90c0 = []Method{
		{Offset: 0x1a24, Stride: 0, Count: 1, Name: "DELAY", Mask: 0xffffffff},
	}
)
