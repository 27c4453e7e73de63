package firmware

// A tokenKind is a BIT token that the package understands: where it is in a
// Description, how its data and tables are built and parsed.
type tokenKind struct {
	id, version uint8
	least       int // bytes of data that a driver must find
	present     func(*Description) bool
	remove      func(*Description)
	build       func(*builder, *Description) (at, size int, err error)
	parse       func(*parser, *Description, tokenData) (understood bool, err error)
}

// tokenData is a token's data in the file.
type tokenData struct {
	at   int
	data []byte
}

// tokenKinds are in the order that Build writes them.
var tokenKinds = []tokenKind{
	token('i', 2, 15, infoLayout, func(d *Description) **Info { return &d.Info }, nil, nil),
	token('I', 1, 14, initLayout, func(d *Description) **InitTables { return &d.Init }, buildScripts, parseScripts),
	token('C', 2, 4, clockLayout, func(d *Description) **Clocks { return &d.Clocks }, buildPLLs, parsePLLs),
	token('P', 2, 0, perfLayout, func(d *Description) **Perf { return &d.Perf }, nil, nil),
	token('M', 2, 5, memoryLayout, func(d *Description) **Memory { return &d.Memory }, buildMemory, parseMemory),
	token('A', 1, 3, analogLayout, func(d *Description) **Analog { return &d.Analog }, buildLoads, parseLoads),
	token('D', 1, 4, panelsLayout, func(d *Description) **Panels { return &d.Panels }, nil, nil),
	token('L', 1, 2, lvdsLayout, func(d *Description) **LVDS { return &d.LVDS }, nil, nil),
	token('T', 1, 2, tmdsLayout, func(d *Description) **TMDS { return &d.TMDS }, nil, nil),
}

// token is a kind whose data has a layout. build places its tables and stores where they are.
// parse reads them, and resets what build stores; if it does not understand them, the token is
// kept raw.
func token[T any](id, version uint8, least int, l layout[T], in func(*Description) **T,
	build func(*builder, *Description, *T) error, parse func(p *parser, v *T, at int) (understood bool, err error)) tokenKind {
	return tokenKind{
		id, version, least,
		func(d *Description) bool { return *in(d) != nil },
		func(d *Description) { *in(d) = nil },
		func(b *builder, d *Description) (at, size int, err error) {
			v := **in(d)
			if build != nil {
				err = build(b, d, &v)
			}
			if err != nil {
				return 0, 0, err
			}
			return put(b, l, &v)
		},
		func(p *parser, d *Description, t tokenData) (understood bool, err error) {
			v := new(T)
			record(p, l, t.at, t.data, v)
			if understood = true; parse != nil {
				understood, err = parse(p, v, t.at)
			}
			if understood {
				*in(d) = v
			}
			return understood, err
		},
	}
}

func kindOf(id, version uint8) *tokenKind {
	for i := range tokenKinds {
		if tokenKinds[i].id == id && tokenKinds[i].version == version {
			return &tokenKinds[i]
		}
	}
	return nil
}

// putTable places a table: a header of its own geometry, then entries.
func putTable[H, E any](b *builder, header layout[H], version uint8, entry layout[E], entries []E) (at int, buf []byte, err error) {
	n := len(entries)
	if n > 255 {
		return 0, nil, errorf(NoOffset, header.name, "%d entries, at most 255 fit", n)
	}
	at, buf, err = b.alloc(header.size+n*entry.size, header.name)
	if err != nil {
		return 0, nil, err
	}
	copy(buf, []byte{version, uint8(header.size), uint8(entry.size), uint8(n)})
	return at, buf, encodeAll(buf[header.size:], at+header.size, entry, entries)
}

// readTable decodes the table to which the pointer ptr, stored at from, points. ok is false if
// there is none, or its version is another.
func readTable[H, E any](p *parser, header layout[H], least int, version uint8, entry layout[E], ptr, from int, h *H, each func(at int, e E) error) (at int, ok bool, err error) {
	if at, err = follow(p, header, least, ptr, from, h); err != nil {
		return at, false, err
	}
	if v := p.data[at]; v != version {
		p.warn(at, header.name, "version %02x is not understood, only %02x is", v, version)
		return at, false, nil
	}
	g := tableHeader{version, p.data[at+1], p.data[at+2], p.data[at+3]}
	entries, err := p.table(at, 2, g, header.size, entry.size, header.name)
	for i, b := range entries {
		var e E
		eat := at + int(g.HeaderSize) + i*int(g.EntrySize)
		record(p, entry, eat, b, &e)
		if err := each(eat, e); err != nil {
			return at, false, err
		}
	}
	return at, err == nil, err
}

func buildScripts(b *builder, d *Description, v *InitTables) error {
	table, buf, err := b.alloc(2*len(v.Scripts)+2, "init script table")
	if err != nil {
		return err
	}
	v.ScriptTable = uint16(table)
	for i, code := range v.Scripts {
		at, err := b.script(code, d.ramConfigs())
		if err != nil {
			return err
		}
		putLE(buf[2*i:], 2, uint64(at))
	}
	if len(v.Extra) > 0 {
		at, err := b.script(v.Extra, d.ramConfigs())
		v.ExtraScript = uint16(at)
		return err
	}
	return nil
}

func parseScripts(p *parser, v *InitTables, at int) (bool, error) {
	p.initAt, p.scriptTable, p.extraScript = at, int(v.ScriptTable), int(v.ExtraScript)
	v.ScriptTable, v.ExtraScript = 0, 0
	return true, nil
}

func buildPLLs(b *builder, _ *Description, v *Clocks) error {
	table, buf, err := putTable(b, pllTableLayout, pllVersion, pllLayout, v.PLLs)
	if err != nil {
		return err
	}
	v.PLLTable = uint32(table)
	for i := range v.PLLs {
		at, _, err := put(b, pllLimitsLayout, &v.PLLs[i].Limits)
		if err != nil {
			return err
		}
		putLE(buf[pllTableLayout.size+i*pllLayout.size+1:], 2, uint64(at))
	}
	return nil
}

func parsePLLs(p *parser, v *Clocks, at int) (ok bool, err error) {
	ptr := int(v.PLLTable)
	if v.PLLTable = 0; ptr == 0 {
		p.warn(at, "BIT 'C'", "has no PLL table")
		return false, nil
	}
	_, ok, err = readTable(p, pllTableLayout, 4, pllVersion, pllLayout, ptr, at, new(tableHeader), func(at int, pll PLL) error {
		limits := int(pll.LimitsAt)
		pll.LimitsAt = 0
		if limits != 0 {
			if _, err := follow(p, pllLimitsLayout, pllLimitsLayout.size, limits, at+1, &pll.Limits); err != nil {
				return err
			}
		}
		v.PLLs = append(v.PLLs, pll)
		return nil
	})
	return ok, err
}

func buildMemory(b *builder, _ *Description, m *Memory) error {
	if len(m.Types) == 0 {
		return nil
	}
	at, buf, err := putTable(b, m0203Layout, m0203Version, memoryConfigLayout, m.Types)
	if err != nil {
		return err
	}
	m.TypeTable, buf[4] = uint16(at), m.Match
	putLE(buf[5:], 2, uint64(m.TypesPointer))
	return nil
}

func parseMemory(p *parser, m *Memory, at int) (bool, error) {
	ptr := int(m.TypeTable)
	if m.TypeTable = 0; ptr == 0 {
		p.warn(at+3, "BIT 'M'", "has no memory type table (M0203): drivers cannot tell the kind of memory")
		return true, nil
	}
	var h m0203Header
	table, ok, err := readTable(p, m0203Layout, 4, m0203Version, memoryConfigLayout, ptr, at+3, &h, func(_ int, c MemoryConfig) error {
		m.Types = append(m.Types, c)
		return nil
	})
	switch {
	case !ok:
		return err == nil, err
	case len(m.Types) == 0:
		p.warn(table+3, "M0203", "has no entries: drivers cannot tell the kind of memory")
		return true, nil
	case h.Match != 0:
		p.warn(table+4, "M0203", "is searched in way %02x, only 00 (by RAM strap) is known", h.Match)
	}
	m.Match, m.TypesPointer = h.Match, h.Pointer
	return true, nil
}

func buildLoads(b *builder, _ *Description, v *Analog) error {
	loads := make([]analogLoad, len(v.Loads))
	for i, load := range v.Loads {
		loads[i].Load = load
	}
	at, _, err := putTable(b, analogTableLayout, analogVersion, analogLoadLayout, loads)
	v.LoadTable = uint16(at)
	return err
}

func parseLoads(p *parser, v *Analog, at int) (ok bool, err error) {
	ptr := int(v.LoadTable)
	if v.LoadTable = 0; ptr == 0 {
		p.warn(at, "BIT 'A'", "has no analog load table")
		return false, nil
	}
	_, ok, err = readTable(p, analogTableLayout, 4, analogVersion, analogLoadLayout, ptr, at, new(tableHeader), func(_ int, l analogLoad) error {
		v.Loads = append(v.Loads, l.Load)
		return nil
	})
	return ok, err
}
