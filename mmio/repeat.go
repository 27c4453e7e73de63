package mmio

import "fmt"

func (r *Reg) instances() int {
	n := 1
	for _, d := range r.Rep {
		n *= d.Count
	}
	return n
}

// InstanceOffset returns the byte offset of instance i.
func (r *Reg) InstanceOffset(i int) uint32 {
	off := r.Offset
	for d := len(r.Rep) - 1; d >= 0; d-- {
		off += uint32(i%r.Rep[d].Count) * r.Rep[d].Stride
		i /= r.Rep[d].Count
	}
	return off
}

// InstanceName returns the name of instance i as reports print it.
func (r *Reg) InstanceName(i int) string {
	switch len(r.Rep) {
	case 0:
		return r.Name
	case 1:
		return fmt.Sprintf("%s[%d]", r.Name, i)
	}
	return fmt.Sprintf("%s[%d][%d]", r.Name, i/r.Rep[1].Count, i%r.Rep[1].Count)
}

// nesting converts an offset to an instance: the larger stride divides first, and each
// quotient counts as many instances as its dimension steps.
type nesting struct {
	base         uint32 // dword of the first instance
	large, small uint32 // strides, never 0
	perLarge     int
	perSmall     int
}

// maxCount is how many dwords the largest space has. The bound keeps products
// of counts and strides inside 64 bits.
const maxCount = 1 << 30

func newNesting(decl *Reg) (nesting, error) {
	n := nesting{base: decl.Offset &^ 3, large: 1, small: 1}
	if len(decl.Rep) > 2 {
		return n, fmt.Errorf("register %s repeats in %d dimensions; at most 2 are possible", decl.Name, len(decl.Rep))
	}
	type dim struct {
		Dim
		per int // instances per step
	}
	var dims []dim
	for i, d := range decl.Rep {
		if d.Count < 1 || d.Count > maxCount || d.Stride == 0 || d.Stride%4 != 0 {
			return n, fmt.Errorf("register %s repeats %d times, %#x apart: need 1 to %#x, and a multiple of 4",
				decl.Name, d.Count, d.Stride, maxCount)
		}
		if d.Count == 1 {
			continue // its stride divides nothing
		}
		per := 1
		if i == 0 && len(decl.Rep) == 2 {
			per = decl.Rep[1].Count
		}
		dims = append(dims, dim{d, per})
	}
	if len(dims) == 2 && dims[0].Stride < dims[1].Stride {
		dims[0], dims[1] = dims[1], dims[0]
	}
	if len(dims) > 0 {
		n.large, n.perLarge = dims[0].Stride, dims[0].per
	}
	if len(dims) > 1 {
		n.small, n.perSmall = dims[1].Stride, dims[1].per
		if uint64(dims[1].Count-1)*uint64(n.small) >= uint64(n.large) {
			return n, fmt.Errorf("register %s: %d steps of %#x do not nest in the stride %#x of its other dimension",
				decl.Name, dims[1].Count, n.small, n.large)
		}
	}
	return n, nil
}

// instance returns which instance lies in the dword at off, which must be one
// of the row's.
func (n *nesting) instance(off uint32) int {
	if n.perLarge == 0 {
		return 0
	}
	rest := off - n.base
	return int(rest/n.large)*n.perLarge + int(rest%n.large/n.small)*n.perSmall
}
