package gsp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// FuzzCalls: whatever a guest sends, GSP keeps to the contract with its host, to its bounds, and to one
// reply a call.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("a conversation of eight or nine calls, which mean little, with parameters of no sense at all"))
	f.Fuzz(func(t *testing.T, data []byte) { converse(t, data) })
}

func TestConversations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := make([]byte, 1500)
		_, _ = rand.NewChaCha8([32]byte{rapid.Byte().Draw(t, "seed"), rapid.Byte().Draw(t, "more")}).Read(data)
		converse(t, data)
	})
}

// asked are an allocation or a control that a driver makes, and on what.
type asked struct{ number, on uint32 }

var (
	allocated = []asked{
		{0, c1}, {0x80, c1}, {0x2080, dev}, {0x90f1, dev}, {0x90f1, dev}, {0xc86f, dev}, {0xc86f, dev}, {0xcb97, chanBase}, {0xc8b5, chanBase}, {0x81, dev},
	}
	controlled = []asked{
		{0x801813, dev}, {0x801814, dev}, {0x90f10106, vas}, {0xa06f0103, chanBase}, {0xa06f0103, chanBase}, {0xa06f0104, chanBase},
		{0x2080012b, sub}, {0x20800138, sub}, {0x20800ac2, sub}, {0x20800ac3, sub}, {0x20800a5c, sub}, {1, sub},
	}
)

// converse calls what the data says: mostly what drivers do, with values that are nearly right.
func converse(t require.TestingT, data []byte) {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	u := newGuest(t)
	u.boot()
	u.client(c1, true)
	handle := func(h uint32) uint32 {
		if next(16) == 0 {
			return []uint32{c1, c2, dev, vas, chanBase, internal, internalDev, 1 << 31}[next(8)]
		}
		if h == chanBase || h == vas {
			h += uint32(next(3))
		}
		return h
	}
	for len(data) > 0 {
		client := []uint32{c1, c1, c1, c1, c1, c1, c2, internal}[next(8)]
		p := channelParams(uint64(next(4)), []uint64{1, 1, 9, 10}[next(4)])
		if a := controlled[0]; next(2) == 0 {
			p = fields{0: 0x1000*uint64(next(3)) + uint64(next(2)), 4: vas, 0xc: uint64(client), 0x10: uint64(a.on), 0x20: 4, 0x28: 0x2000, 0x38: 1}
			p[0x10] = []uint64{vas, vas + 1, chanBase + 1, vas}[next(4)]
		}
		if next(8) == 0 {
			p[4*next(64)] = []uint64{0, 1, 2, vas, chanBase, 1 << 31, 1<<32 - 1, 1 << 33}[next(8)]
		}
		params := p.bytes(560)
		if next(16) == 0 {
			params = params[:4*next(140)]
		}
		switch next(10) {
		case 0, 1, 2, 3:
			a := allocated[next(10)]
			h := map[uint32]uint32{0: client, 0x80: dev, 0x2080: sub, 0x90f1: vas, 0xc86f: chanBase}[a.number]
			if h == 0 {
				h = uint32(next(256))
			}
			u.alloc(client, handle(a.on), handle(h), a.number, params)
		case 4, 5, 6:
			a := controlled[next(12)]
			u.control(client, handle(a.on), a.number, params)
		case 7:
			u.free(client, handle([]uint32{vas, chanBase, chanBase, dev, 7, 8}[next(6)]))
		case 8:
			st := u.g.State()
			u.restore(&st)
			require.Equal(t, st, u.g.State())
			u.g.Failed(uint32(next(4)), ErrorMMU, 1, 2)
			u.g.LogError(uint32(next(4)), ErrorPBDMA, "text")
		case 9:
			switch next(4) {
			case 0: // anything at all, and a queue that lies
				u.push(Call{Function: []uint32{4, 10, 47, 65, 70, 71, 76, 103, 0x1001}[next(9)], Payload: params})
				off := []uint32{commandsAt + headWrite, commandsAt + headRead, element(commandsAt, u.write+elements-1) + callLength, 8 * 200}[next(4)]
				le.PutUint32(u.at(off), uint32(next(256)*next(256)))
				_ = u.g.Kick()
				u.again()
			case 1:
				u.call(47, fields{0: uint64(next(2)), 4: 3}.bytes(8))
				u.again()
			}
		}
		require.LessOrEqual(t, len(u.g.objects.nodes), testBudget+len(internalObjects))
		require.LessOrEqual(t, len(u.g.Unsupported), maxUnsupported)
		for id, c := range u.host.channels {
			require.True(t, u.g.channels[id].Channel.Opened)
			require.Equal(t, c.Space, u.g.channels[id].Channel.Space)
			require.False(t, u.host.running[id] && u.g.Stopped)
		}
	}
}

// again boots as a driver does after it unloaded or found its queues broken.
func (u *guest) again() {
	resume := u.g.Suspended
	d := newDriver()
	d.write, d.read, d.sequence = u.write, u.read, u.sequence
	if resume {
		copy(d.ram[sharedAt:], u.ram[sharedAt:])
		le.PutUint64(d.ram[descAt:], magicResume)
		d.ram[argsAt+argsResume] = 1
	} else {
		d.write, d.read, d.sequence = 0, 0, 0
	}
	*u.driver = *d
	if resume && u.g.Boot(paramsAt) == nil {
		for m := u.pull(u.t); m != nil; m = u.pull(u.t) {
		}
	} else if !resume {
		u.boot()
	}
}
