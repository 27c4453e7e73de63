package aggregator

import (
	"math/bits"
	"slices"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// requests are flags, not a queue: repeated requests collapse into at most one further round
// of the worker. Guest.pending collects them; the worker moves them to Guest.current for a
// round. A trap on the fast path fills current itself (see fastpath.go).
type requests struct {
	bind       channelSet // inst or bound changed
	preempt    channelSet
	doorbells  channelSet
	flush      channelSet // of doorbells: GP_PUT must be read again after aliases were flushed
	reset      bool
	schedule   bool // whether channels may run changed
	runlist    bool
	base       uint32 // NV_PFIFO_RUNLIST_BASE
	count      uint32
	invalidate invalidations
	asked      bool             // the guest polls for an invalidate that was not deferred
	entries    bool             // apply eagerly written table entries
	policy     *shadowpt.Policy // change how shadows are maintained
}

// invalidations names the directories whose shadows must be updated.
type invalidations struct {
	all  bool
	dirs [4]spaceKey // more than four set all
	n    int
}

func (v *invalidations) add(dir spaceKey) {
	if slices.Contains(v.dirs[:v.n], dir) {
		return
	}
	if v.n == len(v.dirs) {
		v.all = true
		return
	}
	v.dirs[v.n] = dir
	v.n++
}

// merge adds what o names.
func (v *invalidations) merge(o invalidations) {
	v.all = v.all || o.all
	for _, dir := range o.dirs[:o.n] {
		v.add(dir)
	}
}

func (v *invalidations) any() bool { return v.all || v.n > 0 }

func (v *invalidations) has(s spaceKey) bool {
	return v.all || slices.Contains(v.dirs[:v.n], s)
}

func (t *requests) empty() bool {
	return t.bind.empty() && t.preempt.empty() && t.doorbells.empty() && !t.runlist && !t.reset && !t.schedule && !t.invalidate.any() && !t.entries && t.policy == nil
}

// bindsOnly reports whether there are only binds, unbinds, preempts and invalidates.
func (t *requests) bindsOnly() bool {
	rest := *t
	rest.bind, rest.preempt, rest.invalidate = channelSet{}, channelSet{}, invalidations{}
	return rest.empty()
}

// doorbellsOnly reports whether there are only doorbells: no register polls for those.
func (t *requests) doorbellsOnly() bool {
	rest := *t
	rest.doorbells = channelSet{}
	return rest.empty()
}

// channelSet is a set of channel numbers.
type channelSet [gf100.Channels / 64]uint64

func (s *channelSet) add(id uint8)      { s[id/64] |= 1 << (id % 64) }
func (s *channelSet) remove(id uint8)   { s[id/64] &^= 1 << (id % 64) }
func (s *channelSet) has(id uint8) bool { return s[id/64]>>(id%64)&1 != 0 }
func (s *channelSet) empty() bool       { return *s == channelSet{} }

// addAll adds the numbers of channels.
func (s *channelSet) addAll(list []*boundChannel) {
	for _, ch := range list {
		s.add(ch.gid)
	}
}

// without returns the number of members that are not in o.
func (s *channelSet) without(o channelSet) (n int) {
	for i, word := range s {
		n += bits.OnesCount64(word &^ o[i])
	}
	return n
}

// each calls f for the members, lowest first.
func (s *channelSet) each(f func(id uint8)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint8(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
