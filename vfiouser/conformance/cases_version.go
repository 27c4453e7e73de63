package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func first(name, does string, m message, want expectation) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		a := ask(s.dial(), m)
		if fault := want(s, a); fault != "" {
			return fail("%s", fault)
		}
		return pass("%v", a)
	}}
}

// otherMajor proposes a major version that no server speaks: the server may answer that, and must
// close.
func otherMajor(name string, major uint16) Case {
	return Case{Name: name, Does: fmt.Sprintf("VERSION %d.0", major), run: func(s *session) finding {
		c := s.dial()
		m := versionMessage(major, 0, client.QEMUCapabilities)
		a := ask(c, m)
		if fault := refusedOrClosed(s, a); fault != "" {
			return fail("%s", fault)
		}
		if end := receive(c, m); end.kind != closed {
			return fail("the connection stays open: %v", end)
		}
		return pass("%v, closed", a)
	}}
}

func agrees(major, minor uint16) expectation {
	return func(s *session, a answer) string {
		if fault := served(s, a); fault != "" {
			return fault
		}
		caps, err := client.ParseVersion(a.body)
		switch {
		case err != nil:
			return err.Error()
		case caps.Major != major || caps.Minor > minor:
			return fmt.Sprintf("version %d.%d for a proposed %d.%d", caps.Major, caps.Minor, major, minor)
		}
		return ""
	}
}

// soundCapabilities wants the reply's JSON as the specification has it.
func soundCapabilities(_ *session, a answer) string {
	if a.kind != answered || len(a.body) < wire.VersionSize {
		return fmt.Sprintf("%v, where a version was due", a)
	}
	text := a.body[wire.VersionSize:]
	if len(text) == 0 {
		return ""
	}
	if bytes.IndexByte(text, 0) != len(text)-1 {
		return "the JSON does not end with its one NUL"
	}
	var doc struct {
		Capabilities struct {
			MaxMsgFDs   *uint32 `json:"max_msg_fds"`
			MaxDataXfer *uint32 `json:"max_data_xfer_size"`
			MaxDMAMaps  *uint32 `json:"max_dma_maps"`
			PgSizes     *uint64 `json:"pgsizes"`
			WriteMulti  *bool   `json:"write_multiple"`
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(text[:len(text)-1], &doc); err != nil {
		return "capabilities: " + err.Error()
	}
	switch c := doc.Capabilities; {
	case c.MaxDataXfer != nil && *c.MaxDataXfer == 0:
		return "max_data_xfer_size is 0"
	case c.PgSizes != nil && *c.PgSizes == 0:
		return "pgsizes is 0"
	}
	return ""
}

// notLonger wants a reply that fits the request, as QEMU reads it into the request's buffer.
func notLonger(m message) expectation {
	return func(s *session, a answer) string {
		if a.kind == answered && len(a.body) > len(m.payload) {
			return fmt.Sprintf("a reply of %d bytes to a request of %d", len(a.body), len(m.payload))
		}
		return served(s, a)
	}
}

func capabilities(text string) message {
	return versionMessage(0, 0, `{"capabilities": `+text+`}`)
}

var negotiation = []Case{
	first("QEMU's proposal", "VERSION 0.0 with the capabilities of QEMU 11.1", versionMessage(0, 0, client.QEMUCapabilities), agrees(0, 0)),
	first("minor 1", "VERSION 0.1", versionMessage(0, 1, client.QEMUCapabilities), agrees(0, 1)),
	first("minor 65535", "VERSION 0.65535", versionMessage(0, 65535, client.QEMUCapabilities), agrees(0, 65535)),
	first("no capabilities", "VERSION 0.0 of 4 bytes", versionMessage(0, 0, ""), agrees(0, 0)),
	first("empty document", "VERSION with {}", versionMessage(0, 0, "{}"), agrees(0, 0)),
	first("empty capabilities", "VERSION with no capability", capabilities("{}"), agrees(0, 0)),
	first("unknown capability", "an unknown capability", capabilities(`{"umbra": [1, "two"]}`), agrees(0, 0)),
	first("unknown key", "a key besides capabilities", versionMessage(0, 0, `{"umbra": 1, "capabilities": {}}`), agrees(0, 0)),
	first("reply's capabilities", "VERSION as QEMU's; the reply's JSON is read", versionMessage(0, 0, client.QEMUCapabilities), soundCapabilities),
	choice(first("reply's length", "VERSION as QEMU's; QEMU cannot read a reply longer than its request", versionMessage(0, 0, client.QEMUCapabilities), notLonger(versionMessage(0, 0, client.QEMUCapabilities)))),
	otherMajor("major 1", 1),
	otherMajor("major 65535", 65535),
	{Name: "twin socket", Does: "VERSION that offers a socket for the server's commands", run: func(s *session) finding {
		a := ask(s.dial(), capabilities(`{"max_msg_fds": 1, "twin_socket": {"supported": true}}`+strings.Repeat(" ", 64)))
		var doc struct {
			Capabilities struct {
				TwinSocket struct {
					Supported bool
					FDIndex   *int `json:"fd_index"`
				} `json:"twin_socket"`
			}
		}
		if fault := agrees(0, 0)(s, a); fault != "" {
			return fail("%s", fault)
		}
		if text := a.body[wire.VersionSize:]; len(text) > 0 {
			if err := json.Unmarshal(text[:len(text)-1], &doc); err != nil {
				return fail("capabilities: %v", err)
			}
		}
		t := doc.Capabilities.TwinSocket
		switch {
		case !t.Supported && a.fds == 0:
			return absent("the server does not offer one")
		case !t.Supported || t.FDIndex == nil || *t.FDIndex < 0 || *t.FDIndex >= a.fds:
			return fail("twin_socket %+v with %d descriptors", t, a.fds)
		}
		return pass("descriptor %d", *t.FDIndex)
	}},
	first("payload of 3 bytes", "VERSION cut in the minor", command(wire.Version, []byte{0, 0, 0}), refusedOrClosed),
	first("no payload", "VERSION of a header", command(wire.Version, nil), refusedOrClosed),
	first("message id 0", "VERSION with id 0", versionMessage(0, 0, client.QEMUCapabilities).id(0), agrees(0, 0)),
	first("message id 65535", "VERSION with id 0xffff", versionMessage(0, 0, client.QEMUCapabilities).id(0xffff), agrees(0, 0)),
	first("another command first", "DEVICE_GET_INFO before VERSION", deviceInfoMessage(wire.DeviceInfoSize), refusedOrClosed),
	first("a reply first", "VERSION of type reply", versionMessage(0, 0, client.QEMUCapabilities).with(wire.TypeReply), refusedOrClosed),
	first("impossible size", "VERSION whose header says 8 bytes", versionMessage(0, 0, client.QEMUCapabilities).sizeField(8), refusedOrClosed),
	choice(first("JSON not ended", "capabilities without NUL", command(wire.Version, append([]byte{0, 0, 0, 0}, `{"capabilities": {}}`...)), whateverInBounds)),
	choice(first("JSON broken", "capabilities that are no JSON", versionMessage(0, 0, `{"capabilities": {`), whateverInBounds)),
	choice(first("capabilities a list", `"capabilities": []`, capabilities("[]"), whateverInBounds)),
	choice(first("max_msg_fds a text", `"max_msg_fds": "8"`, capabilities(`{"max_msg_fds": "8"}`), whateverInBounds)),
	choice(first("max_msg_fds below 0", `"max_msg_fds": -1`, capabilities(`{"max_msg_fds": -1}`), whateverInBounds)),
	choice(first("max_msg_fds too large", `"max_msg_fds": 100000`, capabilities(`{"max_msg_fds": 100000}`), whateverInBounds)),
	choice(first("max_data_xfer_size a list", `"max_data_xfer_size": [1]`, capabilities(`{"max_data_xfer_size": [1]}`), whateverInBounds)),
	choice(Case{Name: "descriptor on VERSION", Does: "VERSION with one descriptor", run: func(s *session) finding {
		t := s.pipe()
		m := versionMessage(0, 0, client.QEMUCapabilities)
		m.fds = []int{t.w}
		a := ask(s.dial(), m)
		if a.kind == silent || a.kind == nonsense {
			return fail("%v", a)
		}
		return pass("%v", a)
	}}),
	choice(message1("VERSION again", "a second VERSION on one connection", versionMessage(0, 0, client.QEMUCapabilities), whateverInBounds)),
}

func noPayload(cmd wire.Command) Case {
	return message1("no payload: "+cmd.String(), cmd.String()+" of a header", command(cmd, nil), isRefused)
}

// posted makes a case of a message that wants no reply: the next reply is the next message's.
func posted(name, does string, m message) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		c := s.attach()
		must(c.Send(m.with(wire.NoReply).bytes()), "send")
		if err := alive(c); err != nil {
			return fail("%v", err)
		}
		return pass("no reply, and the next message is answered")
	}}
}

func echo(m message) expectation {
	return func(_ *session, a answer) string {
		if a.kind != answered {
			return a.String()
		}
		if a.msg.ID != m.ID || a.msg.Command != m.Command || a.msg.Flags != wire.TypeReply || a.msg.Errno != 0 {
			return fmt.Sprintf("reply with id %#x, %v, flags %#x, errno %d", a.msg.ID, a.msg.Command, a.msg.Flags, a.msg.Errno)
		}
		return ""
	}
}

var goodInfo = deviceInfoMessage(wire.DeviceInfoSize)

var requests = []Case{
	message1("echo", "DEVICE_GET_INFO; the reply's header is read", goodInfo, echo(goodInfo)),
	message1("message id 0", "DEVICE_GET_INFO with id 0", goodInfo.id(0), echo(goodInfo.id(0))),
	message1("message id 65535", "DEVICE_GET_INFO with id 0xffff", goodInfo.id(0xffff), echo(goodInfo.id(0xffff))),
	message1("reserved errno", "a command with 77 where replies have an errno", message{Header: wire.Header{ID: theID, Command: wire.DeviceGetInfo, Errno: 77}, payload: goodInfo.payload}, served),
	message1("command 0", "command 0", command(0, make([]byte, 16)), isRefused),
	message1("command 19", "the first unknown command", command(19, make([]byte, 16)), isRefused),
	message1("command 255", "command 255", command(255, make([]byte, 16)), isRefused),
	message1("command 65535", "command 65535", command(65535, make([]byte, 16)), isRefused),
	choice(message1("DIRTY_PAGES", "command 14, dropped from the specification", command(wire.DirtyPages, make([]byte, 8)), servedOrRefused)),
	message1("DMA_READ from the client", "a command of the server's", command(wire.DMARead, make([]byte, 16)), isRefused),
	message1("DMA_WRITE from the client", "a command of the server's", command(wire.DMAWrite, make([]byte, 20)), isRefused),
	noPayload(wire.DMAMap), noPayload(wire.DMAUnmap), noPayload(wire.DeviceGetInfo), noPayload(wire.DeviceGetRegionInfo),
	noPayload(wire.DeviceGetRegionIO), noPayload(wire.DeviceGetIRQInfo), noPayload(wire.DeviceSetIRQs),
	noPayload(wire.RegionRead), noPayload(wire.RegionWrite),
	message1("type 2", "DEVICE_RESET of type 2", command(wire.DeviceReset, nil).with(2), refusedOrClosed),
	message1("type 15", "DEVICE_RESET of type 15", command(wire.DeviceReset, nil).with(15), refusedOrClosed),
	choice(message1("a reply to nothing", "DEVICE_RESET of type reply", command(wire.DeviceReset, nil).with(wire.TypeReply), refusedOrClosed)),
	choice(message1("error flag in a command", "DEVICE_GET_INFO with the Error flag", goodInfo.with(wire.Error), servedOrRefused)),
	choice(message1("reserved flags", "DEVICE_GET_INFO with flag 0x100", goodInfo.with(0x100), servedOrRefused)),
	header1("size 0", "a header that says 0 bytes", command(wire.DeviceReset, nil).sizeField(0)),
	header1("size 15", "a header that says 15 bytes", command(wire.DeviceReset, nil).sizeField(15)),
	header1("size 2^32-1", "a header that says 4 GiB", command(wire.DeviceGetInfo, nil).sizeField(0xffffffff)),
	header1("size 64 MiB", "a header that says 64 MiB + 32", command(wire.DeviceGetInfo, nil).sizeField(64<<20+32)),
	posted("posted command that fails", "an unknown command with No_reply", command(200, make([]byte, 16))),
	posted("posted DEVICE_GET_INFO", "DEVICE_GET_INFO with No_reply", goodInfo),
	posted("posted read out of bounds", "REGION_READ of region 1000 with No_reply", readMessage(1000, 0, 4)),
}

// header1 makes a case of a header after which nothing can be found again.
func header1(name, does string, m message) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		a := ask(s.attach(), m)
		if fault := refusedOrClosed(s, a); fault != "" {
			return fail("%s", fault)
		}
		return pass("%v", a)
	}}
}
