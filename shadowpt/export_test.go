package shadowpt

// ForgetLoose makes the tracker forget which pages change unseen.
func (t *Tracker) ForgetLoose() { t.loose.take(nil) }

// LineSize is what a write marks at least of a page.
const LineSize = lineSize

// Heed makes a page of the guest's one that tables lie in; Written takes the lines of it
// that were marked since.
func (t *Tracker) Heed(page uint64)           { t.tables.add(page) }
func (t *Tracker) Written(page uint64) uint64 { return t.written(page) }

// Entry and Decoded translate a guest's page entry, the fast way and the slow one.
func (s *Shadow) Entry(q, page uint64) uint64   { return s.entry(q, page) }
func (s *Shadow) Decoded(q, page uint64) uint64 { return s.decoded(q, page) }

// RebuildDecoded is Rebuild with the slow translator: the oracle that faster ways are held
// against.
func (s *Shadow) RebuildDecoded() { s.rebuild(s.decoded) }

// decoded is entry, field by field.
func (s *Shadow) decoded(q, page uint64) uint64 {
	p := DecodePTE(q)
	if !p.Valid {
		return 0
	}
	card, ok := s.guest.Translate(p.Target, p.Addr, page, !p.ReadOnly)
	if !ok {
		if page == SmallPage {
			s.Counts.Foreign++
		}
		return 0
	}
	p.Addr, p.CompTag, p.Encrypted = card, 0, false
	return p.Encode()
}

// Asked are what is asked of entries without taking them apart: whether one names the
// guest's system memory, and whether engines may write VRAM through it.
func Asked(q uint64) (system, writes bool) { return namesSystem(q) != 0, q&writable == valid }
