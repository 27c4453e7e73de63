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
	{'i', 2, 15, func(d *Description) bool { return d.Info != nil }, func(d *Description) { d.Info = nil }, buildInfo, parseInfo},
	{'I', 1, 14, func(d *Description) bool { return d.Init != nil }, func(d *Description) { d.Init = nil }, buildInit, parseInit},
	{'C', 2, 4, func(d *Description) bool { return d.Clocks != nil }, func(d *Description) { d.Clocks = nil }, buildClocks, parseClocks},
	{'P', 2, 0, func(d *Description) bool { return d.Perf != nil }, func(d *Description) { d.Perf = nil }, buildPerf, parsePerf},
	{'M', 2, 5, func(d *Description) bool { return d.Memory != nil }, func(d *Description) { d.Memory = nil }, buildMemory, parseMemory},
	{'A', 1, 3, func(d *Description) bool { return d.Analog != nil }, func(d *Description) { d.Analog = nil }, buildAnalog, parseAnalog},
	{'D', 1, 4, func(d *Description) bool { return d.Panels != nil }, func(d *Description) { d.Panels = nil }, buildPanels, parsePanels},
	{'L', 1, 2, func(d *Description) bool { return d.LVDS != nil }, func(d *Description) { d.LVDS = nil }, buildLVDS, parseLVDS},
	{'T', 1, 2, func(d *Description) bool { return d.TMDS != nil }, func(d *Description) { d.TMDS = nil }, buildTMDS, parseTMDS},
}

func kindOf(id, version uint8) *tokenKind {
	for i := range tokenKinds {
		if tokenKinds[i].id == id && tokenKinds[i].version == version {
			return &tokenKinds[i]
		}
	}
	return nil
}

func buildInfo(b *builder, d *Description) (int, int, error) { return put(b, infoLayout, d.Info) }

func parseInfo(p *parser, d *Description, t tokenData) (bool, error) {
	d.Info = new(Info)
	record(p, infoLayout, t.at, t.data, d.Info)
	return true, nil
}

func buildPerf(b *builder, d *Description) (int, int, error) { return put(b, perfLayout, d.Perf) }

func parsePerf(p *parser, d *Description, t tokenData) (bool, error) {
	d.Perf = new(Perf)
	record(p, perfLayout, t.at, t.data, d.Perf)
	return true, nil
}

func buildPanels(b *builder, d *Description) (int, int, error) { return put(b, panelsLayout, d.Panels) }

func parsePanels(p *parser, d *Description, t tokenData) (bool, error) {
	d.Panels = new(Panels)
	record(p, panelsLayout, t.at, t.data, d.Panels)
	return true, nil
}

func buildLVDS(b *builder, d *Description) (int, int, error) { return put(b, lvdsLayout, d.LVDS) }

func parseLVDS(p *parser, d *Description, t tokenData) (bool, error) {
	d.LVDS = new(LVDS)
	record(p, lvdsLayout, t.at, t.data, d.LVDS)
	return true, nil
}

func buildTMDS(b *builder, d *Description) (int, int, error) { return put(b, tmdsLayout, d.TMDS) }

func parseTMDS(p *parser, d *Description, t tokenData) (bool, error) {
	d.TMDS = new(TMDS)
	record(p, tmdsLayout, t.at, t.data, d.TMDS)
	return true, nil
}

func buildInit(b *builder, d *Description) (int, int, error) {
	ptrs := initPointers{
		MacroIndex: d.Init.MacroIndex, Macro: d.Init.Macro, Condition: d.Init.Condition, IOCondition: d.Init.IOCondition,
		IOFlagCondition: d.Init.IOFlagCondition, Function: d.Init.Function, Xlat: d.Init.Xlat,
	}
	table, buf, err := b.alloc(2*len(d.Init.Scripts)+2, "init script table")
	if err != nil {
		return 0, 0, err
	}
	ptrs.ScriptTable = uint16(table)
	configs := 0
	if d.Memory != nil {
		configs = int(d.Memory.Groups)
	}
	for i, code := range d.Init.Scripts {
		at, err := b.script(code, configs)
		if err != nil {
			return 0, 0, err
		}
		putLE(buf[2*i:], 2, uint64(at))
	}
	if len(d.Init.Extra) > 0 {
		at, err := b.script(d.Init.Extra, configs)
		if err != nil {
			return 0, 0, err
		}
		ptrs.ExtraScript = uint16(at)
	}
	return put(b, initLayout, &ptrs)
}

func parseInit(p *parser, d *Description, t tokenData) (bool, error) {
	var ptrs initPointers
	record(p, initLayout, t.at, t.data, &ptrs)
	d.Init = &InitTables{
		MacroIndex: ptrs.MacroIndex, Macro: ptrs.Macro, Condition: ptrs.Condition, IOCondition: ptrs.IOCondition,
		IOFlagCondition: ptrs.IOFlagCondition, Function: ptrs.Function, Xlat: ptrs.Xlat,
	}
	p.initAt, p.scriptTable, p.extraScript = t.at, int(ptrs.ScriptTable), int(ptrs.ExtraScript)
	return true, nil
}

func buildClocks(b *builder, d *Description) (int, int, error) {
	n := len(d.Clocks.PLLs)
	if n > 255 {
		return 0, 0, errorf(NoOffset, "PLL table", "%d entries, at most 255 fit", n)
	}
	hdr := tableHeader{pllVersion, uint8(pllTableLayout.size), uint8(pllEntryLayout.size), uint8(n)}
	table, buf, err := b.alloc(pllTableLayout.size+n*pllEntryLayout.size, "PLL table")
	if err != nil {
		return 0, 0, err
	}
	if err := pllTableLayout.encode(buf, table, &hdr); err != nil {
		return 0, 0, err
	}
	for i := range d.Clocks.PLLs {
		pll := &d.Clocks.PLLs[i]
		limits, _, err := put(b, pllLimitsLayout, &pll.Limits)
		if err != nil {
			return 0, 0, err
		}
		entry := pllEntry{pll.Type, uint16(limits), pll.Register, pll.Unk07, pll.Reference}
		at := pllTableLayout.size + i*pllEntryLayout.size
		if err := pllEntryLayout.encode(buf[at:], table+at, &entry); err != nil {
			return 0, 0, err
		}
	}
	return put(b, clockLayout, &clockPointers{uint32(table)})
}

func parseClocks(p *parser, d *Description, t tokenData) (bool, error) {
	var ptrs clockPointers
	record(p, clockLayout, t.at, t.data, &ptrs)
	if ptrs.PLLTable == 0 {
		p.warn(t.at, "BIT 'C'", "has no PLL table")
		return false, nil
	}
	var hdr tableHeader
	at, err := follow(p, pllTableLayout, pllTableLayout.size, int(ptrs.PLLTable), t.at, &hdr)
	if err != nil {
		return false, err
	}
	if hdr.Version != pllVersion {
		p.warn(at, "PLL table", "version %02x is not understood, only %02x is", hdr.Version, pllVersion)
		return false, nil
	}
	entries, err := p.table(at, 2, hdr, pllTableLayout.size, pllEntryLayout.size, "PLL table")
	if err != nil {
		return false, err
	}
	d.Clocks = &Clocks{}
	for i, b := range entries {
		var e pllEntry
		eat := at + int(hdr.HeaderSize) + i*int(hdr.EntrySize)
		record(p, pllEntryLayout, eat, b, &e)
		pll := PLL{Type: e.Type, Register: e.Register, Unk07: e.Unk07, Reference: e.Reference}
		if e.Limits != 0 {
			if _, err := follow(p, pllLimitsLayout, pllLimitsLayout.size, int(e.Limits), eat+1, &pll.Limits); err != nil {
				return false, err
			}
		}
		d.Clocks.PLLs = append(d.Clocks.PLLs, pll)
	}
	return true, nil
}

func buildMemory(b *builder, d *Description) (int, int, error) {
	m := d.Memory
	ptrs := memoryPointers{Groups: m.Groups, StrapMap: m.StrapMap, Training: m.Training, Patterns: m.Patterns, Unk0d: m.Unk0d}
	n := len(m.Types)
	if n > 255 {
		return 0, 0, errorf(NoOffset, "M0203", "%d entries, at most 255 fit", n)
	}
	if n > 0 {
		hdr := m0203Header{m0203Version, uint8(m0203Layout.size), uint8(memoryConfigLayout.size), uint8(n), m.Match, m.TypesPointer}
		table, buf, err := b.alloc(m0203Layout.size+n*memoryConfigLayout.size, "M0203")
		if err != nil {
			return 0, 0, err
		}
		if err := m0203Layout.encode(buf, table, &hdr); err != nil {
			return 0, 0, err
		}
		for i := range m.Types {
			at := m0203Layout.size + i*memoryConfigLayout.size
			if err := memoryConfigLayout.encode(buf[at:], table+at, &m.Types[i]); err != nil {
				return 0, 0, err
			}
		}
		ptrs.Types = uint16(table)
	}
	return put(b, memoryLayout, &ptrs)
}

func parseMemory(p *parser, d *Description, t tokenData) (bool, error) {
	var ptrs memoryPointers
	record(p, memoryLayout, t.at, t.data, &ptrs)
	d.Memory = &Memory{Groups: ptrs.Groups, StrapMap: ptrs.StrapMap, Training: ptrs.Training, Patterns: ptrs.Patterns, Unk0d: ptrs.Unk0d}
	if ptrs.Types == 0 {
		p.warn(t.at+3, "BIT 'M'", "has no memory type table (M0203): drivers cannot tell the kind of memory")
		return true, nil
	}
	var hdr m0203Header
	at, err := follow(p, m0203Layout, 4, int(ptrs.Types), t.at+3, &hdr)
	if err != nil {
		return false, err
	}
	if hdr.Version != m0203Version {
		p.warn(at, "M0203", "version %02x is not understood, only %02x is", hdr.Version, m0203Version)
		return true, nil
	}
	geometry := tableHeader{hdr.Version, hdr.HeaderSize, hdr.EntrySize, hdr.Entries}
	entries, err := p.table(at, 2, geometry, m0203Layout.size, memoryConfigLayout.size, "M0203")
	if err != nil {
		return false, err
	}
	if len(entries) == 0 {
		p.warn(at+3, "M0203", "has no entries: drivers cannot tell the kind of memory")
		return true, nil
	}
	d.Memory.Match, d.Memory.TypesPointer = hdr.Match, hdr.Pointer
	if hdr.Match != 0 {
		p.warn(at+4, "M0203", "is searched in way %02x, only 00 (by RAM strap) is known", hdr.Match)
	}
	for i, b := range entries {
		var c MemoryConfig
		record(p, memoryConfigLayout, at+int(hdr.HeaderSize)+i*int(hdr.EntrySize), b, &c)
		d.Memory.Types = append(d.Memory.Types, c)
	}
	return true, nil
}

func buildAnalog(b *builder, d *Description) (int, int, error) {
	n := len(d.Analog.Loads)
	if n > 255 {
		return 0, 0, errorf(NoOffset, "analog load table", "%d entries, at most 255 fit", n)
	}
	hdr := tableHeader{analogVersion, uint8(analogTableLayout.size), uint8(analogLoadLayout.size), uint8(n)}
	table, buf, err := b.alloc(analogTableLayout.size+n*analogLoadLayout.size, "analog load table")
	if err != nil {
		return 0, 0, err
	}
	if err := analogTableLayout.encode(buf, table, &hdr); err != nil {
		return 0, 0, err
	}
	for i, load := range d.Analog.Loads {
		putLE(buf[analogTableLayout.size+i*analogLoadLayout.size:], 4, uint64(load))
	}
	return put(b, analogLayout, &analogPointers{uint16(table), d.Analog.Unk02})
}

func parseAnalog(p *parser, d *Description, t tokenData) (bool, error) {
	var ptrs analogPointers
	record(p, analogLayout, t.at, t.data, &ptrs)
	if ptrs.LoadTable == 0 {
		p.warn(t.at, "BIT 'A'", "has no analog load table")
		return false, nil
	}
	var hdr tableHeader
	at, err := follow(p, analogTableLayout, analogTableLayout.size, int(ptrs.LoadTable), t.at, &hdr)
	if err != nil {
		return false, err
	}
	if hdr.Version != analogVersion {
		p.warn(at, "analog load table", "version %02x is not understood, only %02x is", hdr.Version, analogVersion)
		return false, nil
	}
	entries, err := p.table(at, 2, hdr, analogTableLayout.size, analogLoadLayout.size, "analog load table")
	if err != nil {
		return false, err
	}
	d.Analog = &Analog{Unk02: ptrs.Unk02}
	for i, b := range entries {
		var l analogLoad
		record(p, analogLoadLayout, at+int(hdr.HeaderSize)+i*int(hdr.EntrySize), b, &l)
		d.Analog.Loads = append(d.Analog.Loads, l.Load)
	}
	return true, nil
}
