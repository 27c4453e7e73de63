package compile

import "fmt"

// maxVisits of blocks, in all passes, bounds the time of an analysis.
const maxVisits = 6000

// maxPasses bounds how often the analysis starts again.
const maxPasses = 8

// settle repeats the analysis until what it took to be live is all that is. It first takes nothing to be
// live for lanes that wait: the other way round, each partial write would make a vector, each vector
// diverges, and the copies of blocks would never end.
func (t *translator) settle() error {
	for range maxPasses {
		if err := t.analyse(); err != nil {
			return err
		}
		if t.incomplete && !t.generic {
			t.generic = true // once more
			continue
		}
		if t.findLive() {
			return nil
		}
		t.prior = t.byKey
	}
	return fmt.Errorf("what is live is not known after %d passes", maxPasses)
}

// scan finds the instructions that can be reached, and those that others jump to.
func (t *translator) scan() error {
	t.leaders = map[uint32]bool{t.options.Entry: true}
	todo := []uint32{t.options.Entry}
	for len(todo) > 0 {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for {
			if _, ok := t.code[pc]; ok {
				break
			}
			if len(t.code) >= t.options.MaxInstructions {
				return fmt.Errorf("more than %d instructions can be reached", t.options.MaxInstructions)
			}
			in, ok := t.front.Decode(pc)
			if !ok {
				t.code[pc] = nil
				break
			}
			t.code[pc] = &in
			t.locks = t.locks || in.Locks
			t.read = t.read.or(setOf(in.Reads))
			if in.Reads == nil || in.Flow == Elsewhere { // there may be more of it than can be found
				t.read = allSlots
			}
			if in.Flow == Branch || in.Flow == Push {
				t.leaders[in.Target] = true
				todo = append(todo, in.Target)
			}
			if in.Guard.Always && (in.Flow == Branch || in.Flow == Leave || in.Flow == Exit) {
				break
			}
			pc = in.Next
		}
	}
	return nil
}

func (t *translator) decode(pc uint32) *Instruction {
	if in, ok := t.code[pc]; ok {
		return in
	}
	in, ok := t.front.Decode(pc)
	if !ok {
		t.code[pc] = nil
		return nil
	}
	t.code[pc] = &in
	return &in
}

// analyse repeats the blocks until what is known at their starts no longer changes.
func (t *translator) analyse() error {
	t.blocks, t.byKey, t.queue = nil, make(map[string]*block), nil
	t.incomplete, t.missing = false, make(map[string]int)
	threads := t.options.Block[0] * t.options.Block[1] * t.options.Block[2]
	t.first = [2]*block{}
	for i, is := range [2]bool{threads%Lanes != 0 && !t.kernel, threads >= Lanes || t.kernel} {
		if is {
			k := t.block(t.options.Entry, nil, i == 1)
			k.starts = true
			t.flow(k, allSlots, pick(t.kernel, zeroSlot, t.unknown))
			t.first[i] = k
		}
	}
	b := &Builder{t: t}
	for len(t.queue) > 0 {
		k := t.queue[len(t.queue)-1]
		t.queue = t.queue[:len(t.queue)-1]
		k.queued = false
		if t.visits++; t.visits > maxVisits {
			return fmt.Errorf("the analysis does not end after %d blocks", maxVisits)
		}
		b.walk(k)
	}
	return nil
}

// block returns the block of a state of control, nil if there are too many.
func (t *translator) block(pc uint32, stack []Entry, full bool) *block {
	key := keyOf(pc, stack, full)
	if k := t.byKey[key]; k != nil {
		return k
	}
	if len(t.blocks) >= t.options.MaxBlocks {
		return nil
	}
	k := &block{number: len(t.blocks), pc: pc, stack: stack[:len(stack):len(stack)], full: full, start: t.read, all: t.read}
	if old := t.prior[key]; old != nil {
		k.end, k.start, k.parked, k.known = old.end, old.start, old.parked, true
	}
	for i := range k.entry {
		k.entry[i] = t.unknown(Slot(i)).Kind
	}
	t.blocks = append(t.blocks, k)
	t.byKey[key] = k
	return k
}

// flow joins values to what is known at the start of a block.
func (t *translator) flow(k *block, live slotSet, value func(Slot) *Value) {
	changed := k.joins == 0
	for i := range Slot(Slots) {
		if !live.has(i) {
			continue
		}
		old, now := k.entry[i], value(i).Kind
		if k.joins > 0 {
			now = old.join(now)
			if k.joins > 3 {
				now = now.widen(old, slotWidth(i))
			}
		}
		if now = now.normal(); now != old {
			k.entry[i], changed = now, true
		}
	}
	for p := range k.wide {
		old := k.wide[p]
		low := Slot(2 * p)
		var now wideKind
		if w := wideOf(value(low), value(low+1)); w != nil && live.has(low) && live.has(low+1) {
			now = wideKind{w.Kind, true}
		}
		if k.joins > 0 {
			now = old.join(now)
			if k.joins > 3 {
				now.Kind = now.widen(old.Kind, 64)
			}
		}
		if !now.ok {
			now = wideKind{}
		}
		if now != old {
			k.wide[p], changed = now, true
		}
	}
	k.joins++
	if changed && !k.queued {
		k.queued = true
		t.queue = append(t.queue, k)
	}
}
