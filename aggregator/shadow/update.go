package shadow

import (
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// The methods in this file belong to the worker.

// Begin begins a round: each space is updated once in it, within a bound of work.
func (sh *Shadows) Begin() {
	sh.work.Left = 2 * sh.cfg.Tables
	for _, sp := range sh.spaces {
		sp.fresh = false
	}
}

// Update updates the shadows that v names, each once a round.
func (sh *Shadows) Update(v Dirs) {
	which := sh.due(v)
	remapped := sh.takeRemapped(sh.following || len(which) == len(sh.spaces))
	if !sh.following {
		for _, sp := range which {
			sh.build(sp, remapped.Lost)
		}
		return
	}
	if len(which) == 0 && remapped.empty() {
		return
	}
	shadows := make([]*shadowpt.Shadow, len(which))
	for i, sp := range which {
		shadows[i], sp.fresh = sp.shadow, true
	}
	sh.timed(remapped.Lost, func() {
		if !remapped.empty() {
			sh.tracker.Remapped(remapped.From, remapped.To-remapped.From)
		}
		sh.tracker.Update(shadows...)
	})
	if len(which) > 0 { // else only the memory map changed
		sh.stats.Scans.Add(1)
	}
}

// takeRemapped returns what was remapped, and forgets it if every space is updated.
func (sh *Shadows) takeRemapped(every bool) Span {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.state.Remapped
	if every {
		sh.state.Remapped = Span{}
	}
	return r
}

// due lists the spaces that v names, without those already updated in
// this round.
func (sh *Shadows) due(v Dirs) (list []*Space) {
	for key, sp := range sh.spaces {
		if !sp.fresh && v.Has(key) {
			list = append(list, sp)
		}
	}
	return list
}

// build builds a shadow from all of the guest's tables, once a round. With lost, entries without
// memory count as lost.
func (sh *Shadows) build(sp *Space, lost bool) {
	if sp.fresh {
		return
	}
	sp.fresh = true
	sh.timed(lost, func() {
		if sh.following {
			sh.tracker.Follow(sp.shadow)
		} else {
			sp.shadow.Rebuild()
		}
	})
	sh.stats.Rebuilds.Add(1)
	if !sh.following {
		sh.stats.Scans.Add(1)
	}
}

// timed runs f on shadows and counts its cost, without the time given to others. If anything
// changed for the card, it must invalidate.
func (sh *Shadows) timed(lost bool, f func()) {
	begin, away := time.Now(), sh.meter.away
	before := sh.work.Counts
	f()
	now := &sh.work.Counts
	s := sh.stats
	foreign := &s.ForeignEntries
	if lost {
		foreign = &s.LostEntries
	}
	foreign.Add(now.Foreign - before.Foreign)
	s.ForeignTables.Add(now.Unread - before.Unread)
	s.RefusedChanges.Add(now.Refused - before.Refused)
	s.TablesOverQuota.Add(now.NoRoom - before.NoRoom + now.Cut - before.Cut)
	s.EntriesExamined.Add(now.Examined - before.Examined)
	s.EntriesChanged.Add(now.Changed - before.Changed)
	s.EntriesRewritten.Add(now.Rewritten - before.Rewritten)
	s.BytesCompared.Add(now.Compared - before.Compared)
	sh.stale = sh.stale || now.Rewritten != before.Rewritten
	end := time.Now()
	s.ShadowTime.Add(int64(end.Sub(begin) - (sh.meter.away - away)))
	sh.meter.spend(now.Examined - before.Examined + perChange*(now.Changed-before.Changed))
	work := sh.meter.work - s.TableWork.Load()
	s.TableWork.Add(work)
	sh.Charge(end, float64(work))
}

// SetPolicy changes how the shadows are maintained. Their content stays correct throughout. It
// reports whether the card must invalidate before the next update: a full scan leaves the tracker
// without entries, and then it reads all tables again.
func (sh *Shadows) SetPolicy(p shadowpt.Policy) (invalidate bool) {
	defer sh.setPolicy(p)
	if sh.following == (p.Scan == shadowpt.ScanIncremental) {
		return false
	}
	for _, sp := range sh.spaces {
		sp.fresh = false
		if sh.following {
			sh.tracker.Unfollow(sp.shadow)
		}
	}
	sh.following = !sh.following
	for _, sp := range sh.spaces {
		sh.build(sp, false)
	}
	return true
}
