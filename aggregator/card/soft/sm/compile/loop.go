package compile

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// Blocks is the name of the function that runs blocks one after the other: void (Context *). It goes on with
// the block of the context, and then takes further ones from the grid. Warps have turns: each runs until
// it waits, ends, or is at a back edge when its slice is spent.
const Blocks = "blocks"

// Table is Program.Sites in the form that Blocks reads: five words each.
func (p *Program) Table() []byte {
	var out []byte
	for _, s := range p.Sites {
		barrier := state.Unknown
		if s.Quiet {
			barrier = s.Barrier
		}
		for _, v := range [siteWords]uint32{uint32(s.Code), uint32(s.Next), barrier, s.PC, s.After} {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
	}
	return out
}

const siteWords = 5

// expand replaces names of fields by where they are.
func expand(text string) string {
	types := map[string]reflect.Type{
		"Context": reflect.TypeFor[Context](), "Work": reflect.TypeFor[state.Work](), "Block": reflect.TypeFor[state.Block](),
		"Warp": reflect.TypeFor[state.Warp](), "Barrier": reflect.TypeFor[state.Barrier](), "Lock": reflect.TypeFor[state.Lock](),
	}
	text = regexp.MustCompile(`\$(Context|Loop|Work|Block|Warp|Barrier|Lock)\.(\w+)`).ReplaceAllStringFunc(text, func(name string) string {
		of, field, _ := strings.Cut(name[1:], ".")
		if of == "Loop" {
			return fmt.Sprint(offsetOf("Loop") + fieldOf[Loop](field))
		}
		f, ok := types[of].FieldByName(field)
		if !ok {
			panic("compile: no field " + name)
		}
		return fmt.Sprint(f.Offset)
	})
	return strings.NewReplacer(
		"$few", fmt.Sprint(few), "$splat12", splatOf(12), "$splat4095", splatOf(4095),
		"$HeaderSize", fmt.Sprint(state.HeaderSize), "$WarpSize", fmt.Sprint(state.WarpSize), "$RegSize", fmt.Sprint(4*Lanes),
		"$BarrierSize", fmt.Sprint(reflect.TypeFor[state.Barrier]().Size()), "$Barriers", fmt.Sprint(state.MaxBarriers),
		"$MaxLocks", fmt.Sprint(state.MaxLocks),
		"$MostTaken", fmt.Sprint(state.MostTaken), "$SiteSize", fmt.Sprint(4*siteWords),
		"$Exhausted", fmt.Sprint(uint32(Exhausted)), "$Budget", fmt.Sprint(uint32(Budget)), "$Stopped", fmt.Sprint(uint32(Stopped)),
		"$Left", fmt.Sprint(uint32(Left)), "$Deadlock", fmt.Sprint(uint32(Deadlock)), "$Settle", fmt.Sprint(uint32(Settle)),
		"$Done", fmt.Sprint(uint32(Done)), "$OutOfBudget", fmt.Sprint(uint32(OutOfBudget)), "$AtBarrier", fmt.Sprint(uint32(AtBarrier)),
	).Replace(text)
}

func splatOf(v int) string {
	return "<" + strings.TrimSuffix(strings.Repeat(fmt.Sprintf("i64 %d, ", v), Lanes), ", ") + ">"
}

// fieldLine is a shorthand: "%x = load T at %p $Type.Field", or "store T v at %p $Type.Field".
var fieldLine = regexp.MustCompile(`(?m)^  (?:(%\w+) = load (\w+)|store (\w+) (\S+)) at (%\w+) (\$\w+\.\w+)$`)

// withFields replaces the shorthand and the names of fields.
func withFields(text string) string {
	n := 0
	return expand(fieldLine.ReplaceAllStringFunc(text, func(line string) string {
		n++
		f := fieldLine.FindStringSubmatch(line)
		at := fmt.Sprintf("  %%f%d = getelementptr i8, ptr %s, i64 %s\n", n, f[5], f[6])
		if f[1] != "" {
			return at + fmt.Sprintf("  %s = load %s, ptr %%f%d", f[1], f[2], n)
		}
		return at + fmt.Sprintf("  store %s %s, ptr %%f%d", f[3], f[4], n)
	}))
}
