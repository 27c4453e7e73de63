package conformance

import (
	"fmt"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// noPayload makes a case of a command with no payload at all.
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

// echo wants the header of a reply to be the message's.
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
