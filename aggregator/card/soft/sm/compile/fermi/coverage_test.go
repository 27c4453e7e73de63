package fermi

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

type word [8]byte

func (w word) Load(addr uint64, to []byte) error                               { copy(to, w[addr%8:]); return nil }
func (w word) Store(uint64, []byte) error                                      { return nil }
func (w word) Update(uint64, int, func(uint64) uint64) (old uint64, err error) { return 0, nil }

// leftOut are the forms that Mesa emits and that another executor executes.
var leftOut = []string{"sustp", "tex", "texquery"}

// What Mesa emits has a meaning here, but for a list.
func TestMesaIsCovered(t *testing.T) {
	text, err := os.ReadFile("../../isa/testdata/words.txt")
	require.NoError(t, err)
	var missing []string
	for line := range strings.Lines(string(text)) {
		number, _, _ := strings.Cut(line, " ")
		v, err := strconv.ParseUint(strings.TrimSpace(number), 16, 64)
		require.NoError(t, err)
		var m word
		binary.LittleEndian.PutUint64(m[:], v)
		f := FrontEnd{&interp.Launch{Registers: 63, Program: &interp.Program{Memory: m}}}
		if in, ok := f.Decode(0); ok && in.Mean == nil && in.Flow == compile.Straight {
			missing = append(missing, in.Name)
		}
	}
	slices.Sort(missing)
	require.Equal(t, leftOut, slices.Compact(missing))
}
