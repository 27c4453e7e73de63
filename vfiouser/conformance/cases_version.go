package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// first makes a case of the first message on a connection.
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
		m := versionMessage(major, 0, qemuCapabilities)
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

// agrees wants a version with the proposed major and a minor not above the proposed.
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
	first("QEMU's proposal", "VERSION 0.0 with the capabilities of QEMU 11.1", versionMessage(0, 0, qemuCapabilities), agrees(0, 0)),
	first("minor 1", "VERSION 0.1", versionMessage(0, 1, qemuCapabilities), agrees(0, 1)),
	first("minor 65535", "VERSION 0.65535", versionMessage(0, 65535, qemuCapabilities), agrees(0, 65535)),
	first("no capabilities", "VERSION 0.0 of 4 bytes", versionMessage(0, 0, ""), agrees(0, 0)),
	first("empty document", "VERSION with {}", versionMessage(0, 0, "{}"), agrees(0, 0)),
	first("empty capabilities", "VERSION with no capability", capabilities("{}"), agrees(0, 0)),
	first("unknown capability", "an unknown capability", capabilities(`{"umbra": [1, "two"]}`), agrees(0, 0)),
	first("unknown key", "a key besides capabilities", versionMessage(0, 0, `{"umbra": 1, "capabilities": {}}`), agrees(0, 0)),
	first("reply's capabilities", "VERSION as QEMU's; the reply's JSON is read", versionMessage(0, 0, qemuCapabilities), soundCapabilities),
	choice(first("reply's length", "VERSION as QEMU's; QEMU cannot read a reply longer than its request", versionMessage(0, 0, qemuCapabilities), notLonger(versionMessage(0, 0, qemuCapabilities)))),
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
	first("message id 0", "VERSION with id 0", versionMessage(0, 0, qemuCapabilities).id(0), agrees(0, 0)),
	first("message id 65535", "VERSION with id 0xffff", versionMessage(0, 0, qemuCapabilities).id(0xffff), agrees(0, 0)),
	first("another command first", "DEVICE_GET_INFO before VERSION", deviceInfoMessage(wire.DeviceInfoSize), refusedOrClosed),
	first("a reply first", "VERSION of type reply", versionMessage(0, 0, qemuCapabilities).with(wire.TypeReply), refusedOrClosed),
	first("impossible size", "VERSION whose header says 8 bytes", versionMessage(0, 0, qemuCapabilities).sizeField(8), refusedOrClosed),
	choice(first("JSON not ended", "capabilities without NUL", command(wire.Version, append([]byte{0, 0, 0, 0}, `{"capabilities": {}}`...)), whateverInBounds)),
	choice(first("JSON broken", "capabilities that are no JSON", versionMessage(0, 0, `{"capabilities": {`), whateverInBounds)),
	choice(first("capabilities a list", `"capabilities": []`, capabilities("[]"), whateverInBounds)),
	choice(first("max_msg_fds a text", `"max_msg_fds": "8"`, capabilities(`{"max_msg_fds": "8"}`), whateverInBounds)),
	choice(first("max_msg_fds below 0", `"max_msg_fds": -1`, capabilities(`{"max_msg_fds": -1}`), whateverInBounds)),
	choice(first("max_msg_fds too large", `"max_msg_fds": 100000`, capabilities(`{"max_msg_fds": 100000}`), whateverInBounds)),
	choice(first("max_data_xfer_size a list", `"max_data_xfer_size": [1]`, capabilities(`{"max_data_xfer_size": [1]}`), whateverInBounds)),
	choice(Case{Name: "descriptor on VERSION", Does: "VERSION with one descriptor", run: func(s *session) finding {
		t := s.pipe()
		m := versionMessage(0, 0, qemuCapabilities)
		m.fds = []int{t.w}
		a := ask(s.dial(), m)
		if a.kind == silent || a.kind == nonsense {
			return fail("%v", a)
		}
		return pass("%v", a)
	}}),
	choice(message1("VERSION again", "a second VERSION on one connection", versionMessage(0, 0, qemuCapabilities), whateverInBounds)),
}
