package firmware_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/firmware"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func build(t testing.TB, o firmware.Options) []byte {
	t.Helper()
	b, err := firmware.Build(o)
	require.NoError(t, err)
	return b
}

func gf100(t testing.TB) []byte { return build(t, firmware.Options{}) }

// le is a reader of its own, so that the package's tables are not tested against themselves.
type le []byte

func (b le) u8(at int) int  { return int(b[at]) }
func (b le) u16(at int) int { return int(b[at]) | int(b[at+1])<<8 }
func (b le) u32(at int) int { return b.u16(at) | b.u16(at+2)<<16 }

// token finds the data of a BIT token as a driver does.
func (b le) token(t testing.TB, id byte) int {
	t.Helper()
	bit := bytes.Index(b, []byte{0xff, 0xb8, 'B', 'I', 'T', 0})
	require.Positive(t, bit)
	for i := range b.u8(bit + 10) {
		e := bit + b.u8(bit+8) + i*b.u8(bit+9)
		if b.u8(e) == int(id) {
			return b.u16(e + 4)
		}
	}
	t.Fatalf("no token %q", id)
	return 0
}

func TestGF100Options(t *testing.T) {
	gddr5 := uint8(firmware.MemoryGDDR5)
	b := le(build(t, firmware.Options{Device: 0x06dd, Size: 64 << 10, MemoryType: &gddr5}))
	require.Len(t, b, 64<<10)
	require.Equal(t, 0x06dd, b.u16(0x46))
	require.Equal(t, 128, b.u8(2))
	require.Equal(t, 128, b.u16(0x50))
	m := b.token(t, 'M')
	require.Equal(t, firmware.MemoryGDDR5, b.u8(b.u16(m+3)+7)&15)
}

func TestBuildRefused(t *testing.T) {
	for _, size := range []int{-512, 512, 8000, 131072} {
		_, err := firmware.Build(firmware.Options{Size: size})
		require.ErrorContains(t, err, "bytes; give a multiple of 512 from 1024 to 130560")
	}
}

func TestGF100IsClean(t *testing.T) {
	img, err := firmware.Load(gf100(t), 0x10de, 0x06d8)
	require.NoError(t, err)
	require.Empty(t, img.Warnings)
	for _, token := range img.Tokens {
		require.True(t, token.Decoded, "%q", token.ID)
	}
}

// rich is an image with what Build leaves out: outputs, scripts with operands and groups, a script
// that runs after the others, and a token that is not understood.
func rich(t testing.TB) []byte {
	b := build(t, firmware.Options{Without: "D"})
	init := le(b).token(t, 'I')
	put(b, init, 0x00, 0x04)                                   // the script table is at 400
	put(b, init+0x0e, 0x60, 0x04)                              // the extra script
	put(b, 0x400, 0x10, 0x04, 0x40, 0x04, 0, 0)                // two scripts
	put(b, 0x410, 0x7a, 0x00, 0x02, 0, 0, 1, 0, 0, 0)          // ZM_REG
	put(b, 0x419, 0x58, 0x00, 0x01, 0x10, 0, 2, 1, 0, 0, 0, 2) // ZM_REG_SEQUENCE of two
	put(b, 0x427, 0x87, 0x0c, 1, 2, 3, 4, 0x71)                // RAM_RESTRICT_PLL, once for each RAM configuration
	put(b, 0x440, 0x91, 0x00, 0x01, 0x10, 0, 9)                // ZM_REG_GROUP of nine: the last is not shown
	put(b, 0x446+9*4, 0x71)                                    // DONE
	put(b, 0x460, 0x00)                                        // an unknown opcode
	put(b, 0x302, 2)                                           // outputs
	put(b, 0x31b, 0x36, 0x12, 0x01, 0x52, 1, 2, 3, 4, 0x0e)    // DisplayPort, end of list
	put(b, 0x8c+7*6, 'U', 1, 20, 0, 0x00, 0x05)                // instead of 'T'
	put(b, 0x500, []byte("twenty bytes of data")...)
	return fix(b)
}

// A change detector: what `umbra rom show` prints of the built image, and of one with more in it.
// The sum is of the bytes that nouveau of Linux 6.1, 6.12 and 7.2 was seen to take without a warning.
func TestShowGolden(t *testing.T) {
	for name, b := range map[string][]byte{"gf100": gf100(t), "rich": rich(t)} {
		golden := "testdata/" + name + ".txt"
		img, err := firmware.Parse(b)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, firmware.Show(&out, img))
		if *update {
			require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), out.String(), "run the test with -update if the change is meant")
	}
}
