package dma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestWindowsEqualDivision: what Of and At say of an address is what dividing it says.
func TestWindowsEqualDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(rapid.IntRange(1, MaxGuests).Draw(t, "guests"))
		addr := b.Size()*rapid.Uint64Range(0, 2*MaxGuests).Draw(t, "window") + rapid.Uint64Range(0, b.Size()-1).Draw(t, "offset")
		n := rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift")
		index, guestAddr, ok := b.Of(addr, n)
		require.Equal(t, addr/b.Size(), index)
		require.Equal(t, addr%b.Size(), guestAddr)
		fits := index < MaxGuests && (n == 0 || addr+n-1 >= addr && (addr+n-1)/b.Size() == index)
		require.Equal(t, fits, ok)
		if ok {
			require.Equal(t, addr, b.At(int(index), guestAddr))
		}
	})
}

// everywhere is memory that has an answer at each address, which says where it was asked.
type everywhere struct{ at *uint64 }

func (everywhere) Acquire() {}
func (everywhere) Release() {}
func (e everywhere) Slice(addr uint64, n int, _ bool) []byte {
	*e.at = addr
	return make([]byte, n)
}

// TestSlice: an address reaches the memory of the guest whose window it is in, while that has any.
func TestSlice(t *testing.T) {
	b := New(3)
	var asked [3]uint64
	for i := range asked {
		require.Nil(t, b.Memory(i))
		b.Attach(i, everywhere{&asked[i]})
	}
	for i := range asked {
		for _, addr := range []uint64{0, b.Size() / 2, b.Size() - 8} {
			before := asked
			require.Len(t, b.Slice(b.At(i, addr), 8, true), 8)
			before[i] = addr
			require.Equal(t, before, asked)
		}
		require.Nil(t, b.Slice(b.At(i, b.Size()-7), 8, true), "it would end in the next guest's")
		b.Attach(i, nil)
		require.Nil(t, b.Slice(b.At(i, 0), 8, true))
	}
	require.Nil(t, b.Slice(b.At(3, 0), 8, true))
}

// TestBarrier: a barrier waits for each step that began before it.
func TestBarrier(t *testing.T) {
	b := New(1)
	b.Acquire()
	b.Acquire() // another step
	done := make(chan struct{})
	go func() { b.Barrier(); close(done) }()
	b.Release()
	select {
	case <-done:
		t.Fatal("a step is under way")
	case <-time.After(20 * time.Millisecond):
	}
	b.Release()
	<-done
}
