package state

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// fill gives every field of a value something that is not zero, and that a block could have.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8:
		v.SetInt(1 + r.Int64N(2))
	default:
		v.SetUint(1 + r.Uint64N(3))
	}
}

func newBlock(r *rand.Rand) *interp.Block {
	b := interp.NewBlock(&interp.Launch{Block: [3]uint32{96, 1, 1}, Grid: [3]uint32{1, 1, 1}, Shared: 100}, [3]uint32{})
	b.Locks = make([]interp.Lock, 3)
	for i := range b.Warps {
		b.Warps[i].Stack = make([]interp.Entry, 4)
	}
	fill(r, reflect.ValueOf(b.BlockState).Elem())
	b.Left = 0 // a turn does not last
	for i := range b.Warps {
		w := &b.Warps[i]
		w.Regs[Registers-1], w.Preds[Predicates-1] = [interp.Lanes]uint32{}, ^uint32(0)
	}
	return b
}

func newImage(t *testing.T) *Image {
	m, err := New(make([]byte, Size(3, 100)), 3, 100)
	require.NoError(t, err)
	return m
}

// Nothing of a block is lost on its way through an image.
func TestImageKeepsAll(t *testing.T) {
	b, m := newBlock(rand.New(rand.NewPCG(1, 1))), newImage(t)
	require.NoError(t, m.Put(b.BlockState))
	out := interp.NewBlock(b.Launch, [3]uint32{})
	require.NoError(t, m.Get(out.BlockState))
	require.Equal(t, b.BlockState, out.BlockState)
}

// An image with any words is refused, or is a block that can go on.
func TestHostileImage(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		b, m := newBlock(r), newImage(t)
		require.NoError(t, m.Put(b.BlockState))
		w := &m.All[r.IntN(3)]
		wrong := r.Uint32() | 1<<8
		field := r.IntN(7)
		switch field {
		case 0:
			w.Depth = wrong
		case 1:
			w.Wait = int32(wrong)
		case 2:
			w.Stack[0].Kind = wrong
		case 3:
			m.Turn = wrong
		case 4:
			m.Locks = wrong | MaxLocks<<1
		case 5:
			m.Held[0].Warp = uint16(wrong)
		case 6:
			m.Barriers[3].Arrived = wrong
		}
		require.Error(t, m.Get(b.BlockState), "field %d", field)
	}
	_, err := New(make([]byte, 100), 3, 100)
	require.Error(t, err)
	_, err = New(make([]byte, 1<<22), MaxWarps+1, 100)
	require.Error(t, err)
}
