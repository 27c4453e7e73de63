package shadow

import (
	"slices"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Key identifies an address space by its directory. Channels with different limits may share
// one.
type Key struct {
	Dir    uint64
	Target shadowpt.Target
}

// keyOf returns the key of a space.
func keyOf(s shadowpt.Space) Key { return Key{s.Dir, s.Target} }

// Dirs names directories whose shadows must be updated. The zero value names none.
type Dirs struct {
	All  bool
	Keys [4]Key // more than four set All
	N    int
}

// All names every directory.
var All = Dirs{All: true}

// Only names one directory.
func Only(k Key) Dirs { return Dirs{Keys: [4]Key{k}, N: 1} }

func (v *Dirs) add(k Key) {
	if slices.Contains(v.Keys[:v.N], k) {
		return
	}
	if v.N == len(v.Keys) {
		v.All = true
		return
	}
	v.Keys[v.N] = k
	v.N++
}

// Merge adds what o names.
func (v *Dirs) Merge(o Dirs) {
	v.All = v.All || o.All
	for _, k := range o.Keys[:o.N] {
		v.add(k)
	}
}

// Any reports whether v names any directory.
func (v *Dirs) Any() bool { return v.All || v.N > 0 }

// Has reports whether v names k.
func (v *Dirs) Has(k Key) bool { return v.All || slices.Contains(v.Keys[:v.N], k) }
