package conformance

import (
	"fmt"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func ioMessage(argsz, flags, index, count uint32) message {
	return command(wire.DeviceGetRegionIO, wire.Append(nil, wire.RegionIO{Argsz: argsz, Flags: flags, Index: index, Count: count}))
}

var ioFDs = []Case{
	message1("configuration space", "argsz 16", ioMessage(16, 0, regionConfig, 0), isAnswered(wire.RegionIOSize)),
	{Name: "all of each region", Does: "each region, first with argsz 16, then with what is needed", run: func(s *session) finding {
		c := s.attach()
		total := uint32(0)
		for i, r := range s.dev.regions {
			if r.Size == 0 {
				continue
			}
			a := reply(c, ioMessage(wire.RegionIOSize, 0, uint32(i), 0), wire.RegionIOSize, "region %d", i)
			head := wire.Parse[wire.RegionIO](a.body)
			switch {
			case head.Argsz < wire.RegionIOSize:
				return fail("region %d: argsz %d", i, head.Argsz)
			case a.fds > 0 && head.Count > 0:
				return fail("region %d: descriptors with entries that do not fit", i)
			}
			a = reply(c, ioMessage(head.Argsz, 0, uint32(i), 0), int(head.Argsz), "region %d, argsz %d", i, head.Argsz)
			if fault := soundEntries(a, r); fault != "" {
				return fail("region %d: %s", i, fault)
			}
			total += head.Count
		}
		return pass("%d entries", total)
	}},
	message1("argsz 15", "argsz 15", ioMessage(15, 0, regionConfig, 0), isRefused),
	message1("argsz 0", "argsz 0", ioMessage(0, 0, regionConfig, 0), isRefused),
	choice(message1("argsz 2 MiB", "argsz of 2 MiB", ioMessage(2<<20, 0, regionConfig, 0), servedOrRefused)),
	message1("flags", "flags 1", ioMessage(16, 1, regionConfig, 0), isRefused),
	message1("count", "count 1", ioMessage(16, 0, regionConfig, 1), isRefused),
	message1("index 2^32-1", "index 0xffffffff", ioMessage(16, 0, 0xffffffff, 0), isRefused),
	message1("payload of 12 bytes", "payload cut", cut(ioMessage(16, 0, regionConfig, 0), 12), isRefused),
	choice(oneMessage("absent region", "a region that is not there", func(s *session) (message, string) {
		i, ok := s.dev.absentRegion()
		if !ok {
			return message{}, "all regions are there"
		}
		return ioMessage(16, 0, i, 0), ""
	}, servedOrRefused)),
}

func soundEntries(a answer, r wire.RegionInfo) string {
	head := wire.Parse[wire.RegionIO](a.body)
	if head.Count == 0 {
		return ""
	}
	stride := (int(head.Argsz) - wire.RegionIOSize) / int(head.Count)
	if stride != wire.SubRegionSize && stride != wire.SubRegionShadowSize {
		return fmt.Sprintf("%d entries in %d bytes", head.Count, head.Argsz)
	}
	for i := range int(head.Count) {
		e := a.body[wire.RegionIOSize+i*stride:]
		switch off, n, fd := le.Uint64(e), le.Uint64(e[8:]), le.Uint32(e[16:]); {
		case off > r.Size || n > r.Size-off:
			return fmt.Sprintf("entry %d: %#x+%#x in %#x bytes", i, off, n, r.Size)
		case int(fd) >= a.fds:
			return fmt.Sprintf("entry %d: descriptor %d of %d", i, fd, a.fds)
		}
	}
	return ""
}

func ifFeature(name, does string, need []uint32, run func(s *session, c *client.Client) finding) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		for _, n := range need {
			if !s.dev.feature[n] {
				return absent("the server does not have feature %d", n)
			}
		}
		return run(s, s.attach())
	}}
}

func refusedIf(name, does string, need []uint32, m message) Case {
	return ifFeature(name, does, need, func(s *session, c *client.Client) finding { return judge(s, c, m, isRefused) })
}

// logStart is the data of DMA_LOGGING_START for all memory.
func logStart(pageSize uint64) []byte { return le.AppendUint64(le.AppendUint64(nil, pageSize), 0) }

// logReport asks for the bitmap of a range, in room for it.
func logReport(addr, n, pageSize uint64) message {
	data := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, addr), n), pageSize)
	m := featureMessage(wire.FeatureDMALoggingReport|wire.FeatureGet, data)
	if pageSize > 0 {
		le.PutUint32(m.payload, uint32(len(m.payload))+uint32((n/pageSize+63)/64*8))
	}
	return m
}

var logging = []uint32{wire.FeatureDMALoggingStart, wire.FeatureDMALoggingStop, wire.FeatureDMALoggingReport}

var dirtyPages = []Case{
	message1("unknown feature", "GET of feature 0xfff", featureMessage(0xfff|wire.FeatureGet, nil), isRefused),
	message1("unknown feature, probed", "PROBE of feature 0xfff", featureMessage(0xfff|wire.FeatureProbe, nil), isRefused),
	message1("no operation", "feature 1 with no operation", featureMessage(wire.FeatureMigration, nil), isRefused),
	message1("two operations", "GET and SET of feature 1", featureMessage(wire.FeatureMigration|wire.FeatureGet|wire.FeatureSet, make([]byte, 8)), isRefused),
	message1("argsz 7", "argsz 7", command(wire.DeviceFeature, wire.Append(nil, wire.Feature{Argsz: 7, Flags: wire.FeatureMigration | wire.FeatureGet})), isRefused),
	message1("payload of 4 bytes", "payload cut", command(wire.DeviceFeature, []byte{8, 0, 0, 0}), isRefused),
	ifFeature("log", "start, report of one range, stop", logging, func(s *session, c *client.Client) finding {
		m := s.memory(64 * page)
		maps(c, base, 64*page, 0, rw, m.fd)
		reply(c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(page)), -1, "start")
		a := reply(c, logReport(base, 64*page, page), wire.FeatureSize+24+8, "report")
		reply(c, featureMessage(wire.FeatureDMALoggingStop|wire.FeatureSet, nil), -1, "stop")
		return pass("bitmap %#x", le.Uint64(a.body[wire.FeatureSize+24:]))
	}),
	ifFeature("reports of parts", "two ranges, and reports of a part of one and of parts of both", logging, func(s *session, c *client.Client) finding {
		m := s.memory(64 * page)
		maps(c, base, 32*page, 0, rw, m.fd)
		maps(c, base+32*page, 32*page, 32*page, rw, m.fd)
		reply(c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(page)), -1, "start")
		for _, r := range [][2]uint64{{base + page, page}, {base + 16*page, 32 * page}} {
			reply(c, logReport(r[0], r[1], page), wire.FeatureSize+24+8, "report of %#x+%#x", r[0], r[1])
		}
		return pass("reported")
	}),
	ifFeature("small pages", "start with a page size of 2048, and a report with it", logging, func(s *session, c *client.Client) finding {
		m := s.memory(page)
		maps(c, base, page, 0, rw, m.fd)
		a := reply(c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(2048)), wire.FeatureSize+16, "start")
		reply(c, logReport(base, page, 2048), wire.FeatureSize+24+8, "report")
		return pass("the log has pages of %d", le.Uint64(a.body[wire.FeatureSize:]))
	}),
	ifFeature("report before start", "a report with room for nothing", logging, func(s *session, c *client.Client) finding {
		m := logReport(base, page, page)
		le.PutUint32(m.payload, wire.FeatureSize)
		return judge(s, c, m, isRefused)
	}),
	ifFeature("argsz of SET and PROBE", "argsz 8 with 8 bytes of data", migrates, func(s *session, c *client.Client) finding {
		for _, op := range []uint32{wire.FeatureProbe, wire.FeatureSet} {
			m := featureMessage(wire.FeatureMigDeviceState|op, le.AppendUint64(nil, uint64(wire.MigStop)))
			le.PutUint32(m.payload, wire.FeatureSize)
			reply(c, m, wire.FeatureSize, "operation %#x", op)
		}
		return pass("a reply of %d bytes", wire.FeatureSize)
	}),
	refusedIf("page size 0", "start with a page size of 0", logging, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(0))),
	ifFeature("another page size", "start with 4 KiB, then with 8 KiB", logging, func(s *session, c *client.Client) finding {
		reply(c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(page)), -1, "start")
		return judge(s, c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(2*page)), isRefused)
	}),
	ifFeature("report of nothing", "a range that is not mapped", logging, func(s *session, c *client.Client) finding {
		reply(c, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureSet, logStart(page)), -1, "start")
		return judge(s, c, logReport(base, 64*page, page), isRefused)
	}),
	refusedIf("report of page size 0", "a bitmap of no pages", logging, logReport(base, 64*page, 0)),
	refusedIf("GET of start", "the wrong operation", logging, featureMessage(wire.FeatureDMALoggingStart|wire.FeatureGet, logStart(page))),
}

func stateMessage(state uint32) message {
	return featureMessage(wire.FeatureMigDeviceState|wire.FeatureSet, le.AppendUint32(le.AppendUint32(nil, state), 0))
}

func migData(cmd wire.Command, n uint32, data []byte) message {
	argsz := uint64(wire.MigDataSize) + uint64(n) // a read's is that of its reply
	return command(cmd, append(wire.Append(nil, wire.MigData{Argsz: uint32(min(argsz, 0xffffffff)), Size: n}), data...))
}

var migrates = []uint32{wire.FeatureMigration, wire.FeatureMigDeviceState}

func stateIs(c *client.Client, want uint32) finding {
	a := reply(c, featureMessage(wire.FeatureMigDeviceState|wire.FeatureGet, make([]byte, 8)), wire.FeatureSize+8, "state")
	if got := le.Uint32(a.body[wire.FeatureSize:]); got != want {
		return fail("state %d, where %d was due", got, want)
	}
	return pass("state %d", want)
}

var migration = []Case{
	{Name: "not offered", Does: "state and data of a device that does not migrate", run: func(s *session) finding {
		if s.dev.feature[wire.FeatureMigration] {
			return absent("the device migrates")
		}
		c := s.attach()
		for _, m := range []message{
			featureMessage(wire.FeatureMigration|wire.FeatureGet, make([]byte, 8)), stateMessage(wire.MigStopCopy),
			migData(wire.MigDataRead, 64, nil), migData(wire.MigDataWrite, 4, make([]byte, 4)),
		} {
			if a := ask(c, m); a.kind != refused {
				return fail("%v: %v", m.Command, a)
			}
		}
		return pass("all refused")
	}},
	message1("data in the running state", "MIG_DATA_READ of a running device", migData(wire.MigDataRead, 64, nil), isRefused),
	message1("data to the running state", "MIG_DATA_WRITE to a running device", migData(wire.MigDataWrite, 4, make([]byte, 4)), isRefused),
	ifFeature("flags", "GET of MIGRATION", migrates, func(s *session, c *client.Client) finding {
		a := reply(c, featureMessage(wire.FeatureMigration|wire.FeatureGet, make([]byte, 8)), wire.FeatureSize+8, "MIGRATION")
		flags := le.Uint64(a.body[wire.FeatureSize:])
		if flags&wire.MigFlagStopCopy == 0 {
			return fail("flags %#x without STOP_COPY", flags)
		}
		return pass("flags %#x", flags)
	}),
	ifFeature("running at first", "GET of the state", migrates, func(s *session, c *client.Client) finding { return stateIs(c, wire.MigRunning) }),
	ifFeature("stop and go", "RUNNING, STOP, RUNNING", migrates, func(s *session, c *client.Client) finding {
		for _, state := range []uint32{wire.MigStop, wire.MigRunning} {
			reply(c, stateMessage(state), -1, "to %d", state)
		}
		return stateIs(c, wire.MigRunning)
	}),
	ifFeature("out and in", "all data taken out in STOP_COPY, and put in again in RESUMING", migrates, func(s *session, c *client.Client) finding {
		reply(c, stateMessage(wire.MigStopCopy), -1, "to STOP_COPY")
		const step = 64 << 10
		var data []byte
		for {
			a := ask(c, migData(wire.MigDataRead, step, nil))
			if a.kind != answered || len(a.body) < wire.MigDataSize || len(a.body) > wire.MigDataSize+step {
				return fail("MIG_DATA_READ: %v", a)
			}
			data = append(data, a.body[wire.MigDataSize:]...)
			if len(a.body) < wire.MigDataSize+step || len(data) > 64<<20 {
				break
			}
		}
		reply(c, stateMessage(wire.MigStop), -1, "to STOP")
		reply(c, stateMessage(wire.MigResuming), -1, "to RESUMING")
		for at := 0; at < len(data); at += step {
			p := data[at:min(at+step, len(data))]
			reply(c, migData(wire.MigDataWrite, uint32(len(p)), p), 0, "MIG_DATA_WRITE")
		}
		reply(c, stateMessage(wire.MigRunning), -1, "to RUNNING")
		f := stateIs(c, wire.MigRunning)
		f.text = fmt.Sprintf("%d bytes; %s", len(data), f.text)
		return f
	}),
	refusedIf("to ERROR", "SET of state ERROR", migrates, stateMessage(wire.MigError)),
	refusedIf("unknown state", "SET of state 99", migrates, stateMessage(99)),
	ifFeature("too much data", "MIG_DATA_READ of 2^32-1 bytes", migrates, func(s *session, c *client.Client) finding {
		reply(c, stateMessage(wire.MigStopCopy), -1, "to STOP_COPY")
		a := ask(c, migData(wire.MigDataRead, 0xffffffff, nil)) // a stopped device answers no DEVICE_GET_INFO
		if a.kind != refused {
			return fail("%v", a)
		}
		return pass("%v", a)
	}),
	ifFeature("reset", "DEVICE_RESET brings RUNNING back", migrates, func(s *session, c *client.Client) finding {
		reply(c, stateMessage(wire.MigResuming), -1, "to RESUMING")
		reply(c, command(wire.DeviceReset, nil), -1, "reset")
		return stateIs(c, wire.MigRunning)
	}),
}
