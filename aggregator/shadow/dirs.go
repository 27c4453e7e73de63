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
	all  bool
	dirs [4]Key // more than four set all
	n    int
}

// All names every directory.
var All = Dirs{all: true}

// Only names one directory.
func Only(k Key) Dirs { return Dirs{dirs: [4]Key{k}, n: 1} }

func (v *Dirs) add(k Key) {
	if slices.Contains(v.dirs[:v.n], k) {
		return
	}
	if v.n == len(v.dirs) {
		v.all = true
		return
	}
	v.dirs[v.n] = k
	v.n++
}

// Merge adds what o names.
func (v *Dirs) Merge(o Dirs) {
	v.all = v.all || o.all
	for _, k := range o.dirs[:o.n] {
		v.add(k)
	}
}

// Any reports whether v names any directory.
func (v *Dirs) Any() bool { return v.all || v.n > 0 }

// Has reports whether v names k.
func (v *Dirs) Has(k Key) bool { return v.all || slices.Contains(v.dirs[:v.n], k) }
