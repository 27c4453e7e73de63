package compile

import (
	"fmt"
	"strings"
)

// A block is straight code with one state of control.
type block struct {
	number int
	pc     uint32
	stack  []Entry
	full   bool // all lanes run
	starts bool // the function can start here

	entry  [Slots]Kind
	wide   [Registers / 2]wideKind // pairs of registers
	joins  int                     // kinds that came in
	queued bool
	open   bool // what follows is not known: all slots count as read

	uses  []use // by instruction
	next  []*block
	end   []slotSet // live after each instruction; nil: all
	start slotSet   // live at the start
	// parked are the slots that lanes that wait on the stack read later.
	parked slotSet
	all    slotSet // of the program
	known  bool    // these are of the analysis before, and not a guess
}

// use is what an instruction reads and writes. A write under a guard keeps what other lanes have.
type use struct{ reads, writes, partial slotSet }

func (k *block) reads(at int, s Slot) { k.at(at).reads.add(s) }

func (k *block) writes(at int, s Slot, guarded bool) {
	u := k.at(at)
	if guarded {
		u.partial.add(s)
	} else {
		u.writes.add(s)
	}
}

func (k *block) at(n int) *use {
	for len(k.uses) <= n {
		k.uses = append(k.uses, use{})
	}
	return &k.uses[n]
}

func (k *block) liveAfter(n int) slotSet {
	if n < len(k.end) {
		return k.end[n]
	}
	return k.all
}

// liveBefore is what an executor needs that goes on before an instruction.
func (k *block) liveBefore(n int) slotSet {
	if k.end == nil {
		return k.all
	}
	if n == 0 {
		return k.start
	}
	return k.liveAfter(n - 1)
}

// placeOf names a program counter with a stack, without what is known of lanes.
func placeOf(pc uint32, stack []Entry) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%x", pc)
	for _, e := range stack {
		fmt.Fprintf(&s, " %d:%x", e.Kind, e.Target)
	}
	return s.String()
}

// keyOf names a block.
func keyOf(pc uint32, stack []Entry, full bool) string {
	var s strings.Builder
	s.WriteString(placeOf(pc, stack))
	for _, e := range stack {
		s.WriteByte(" f"[pick(e.Full, 1, 0)])
	}
	if full {
		s.WriteByte('F')
	}
	return s.String()
}

// liveness is what a block knows of it.
type liveness struct {
	end           []slotSet
	start, parked slotSet
}

// within reports whether all that is live is also live in another.
func (l *liveness) within(o *liveness) bool {
	none := slotSet{}
	for i := range l.end {
		if i < len(o.end) && l.end[i].not(o.end[i]) != none {
			return false
		}
	}
	return l.start.not(o.start) == none && l.parked.not(o.parked) == none
}

// findLive computes which slots are live: read later, by the lanes that run or by those that wait. It
// reports whether the analysis took them all to be live. If so they stay what the analysis took them to be.
func (t *translator) findLive() bool {
	used := make([]liveness, len(t.blocks))
	for i, k := range t.blocks {
		used[i] = liveness{k.end, k.start, k.parked}
	}
	t.computeLive()
	agrees := true
	for i, k := range t.blocks {
		now := liveness{k.end, k.start, k.parked}
		agrees = agrees && k.known && len(k.end) == len(used[i].end) && now.within(&used[i])
	}
	for i, k := range t.blocks {
		old := &used[i]
		if !agrees && !k.known {
			continue
		}
		if !agrees { // it only grows, so that it ends
			k.start, k.parked = k.start.or(old.start), k.parked.or(old.parked)
			for n := range min(len(k.end), len(old.end)) {
				k.end[n] = k.end[n].or(old.end[n])
			}
			continue
		}
		k.end, k.start, k.parked = old.end, old.start, old.parked
	}
	return agrees
}

func (t *translator) computeLive() {
	places := make(map[string][]*block)
	for _, k := range t.blocks {
		p := placeOf(k.pc, k.stack)
		places[p] = append(places[p], k)
		k.end = make([]slotSet, len(k.uses))
		k.start, k.parked = slotSet{}, slotSet{} // the least that agrees with all
	}
	for changed := true; changed; {
		changed = false
		for n := len(t.blocks) - 1; n >= 0; n-- {
			k := t.blocks[n]
			var parked, live slotSet
			for i, e := range k.stack {
				waiting := places[placeOf(e.Target, k.stack[:i])]
				if waiting == nil && t.incomplete { // else no lanes ever wait there
					parked = t.read
				}
				for _, w := range waiting {
					parked = parked.or(w.start)
				}
			}
			for _, s := range k.next {
				live = live.or(s.start)
			}
			if k.open {
				live = t.read
			}
			kept := parked
			if k.full {
				kept = slotSet{}
			}
			for i := len(k.uses) - 1; i >= 0; i-- {
				k.end[i] = live
				u := &k.uses[i]
				live = live.not(u.writes.not(kept)).or(u.reads).or(u.partial)
			}
			if live != k.start || parked != k.parked {
				k.start, k.parked, changed = live, parked, true
			}
		}
	}
}
