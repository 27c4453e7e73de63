package conformance

import (
	"fmt"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// expectation judges an answer. It returns the fault, or "".
type expectation func(s *session, a answer) string

// oneMessage makes a case of one message on a connection that has negotiated. The text is not
// empty if the device lacks what the case needs.
func oneMessage(name, does string, msg func(s *session) (message, string), want expectation) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		m, why := msg(s)
		if why != "" {
			return absent("%s", why)
		}
		return judge(s, s.attach(), m, want)
	}}
}

// judge sends m and holds the answer against want. A connection that is not closed has to be in
// step afterwards.
func judge(s *session, c *client.Client, m message, want expectation) finding {
	a := ask(c, m)
	if fault := want(s, a); fault != "" {
		return fail("%s", fault)
	}
	if a.kind == answered || a.kind == refused {
		if err := alive(c); err != nil {
			return fail("%v, but then %v", a, err)
		}
	}
	return pass("%v", a)
}

// message1 is a case of a message that needs nothing of the device.
func message1(name, does string, m message, want expectation) Case {
	return oneMessage(name, does, func(*session) (message, string) { return m, "" }, want)
}

// choice marks a case as one that the specification does not settle.
func choice(c Case) Case {
	c.Mark = Choice
	return c
}

// isRefused wants an error reply, with any errno.
func isRefused(_ *session, a answer) string {
	if a.kind != refused {
		return fmt.Sprintf("%v, where an error was due", a)
	}
	return ""
}

// refusedWith wants an error reply with one of the errnos.
func refusedWith(errnos ...syscall.Errno) expectation {
	return func(_ *session, a answer) string {
		if a.kind == refused {
			for _, e := range errnos {
				if a.errno == e {
					return ""
				}
			}
		}
		return fmt.Sprintf("%v, where an error was due: one of %v", a, errnos)
	}
}

// isAnswered wants a reply of n bytes of payload.
func isAnswered(n int) expectation {
	return func(_ *session, a answer) string {
		if a.kind != answered || len(a.body) != n {
			return fmt.Sprintf("%v, where a reply of %d bytes was due", a, n)
		}
		return ""
	}
}

// bare wants a reply of the header only.
var bare = isAnswered(0)

// anyOf wants one of several behaviours.
func anyOf(wants ...expectation) expectation {
	return func(s *session, a answer) string {
		text := ""
		for _, w := range wants {
			fault := w(s, a)
			if fault == "" {
				return ""
			}
			text = fault
		}
		return text
	}
}

// isClosed wants the end of the connection.
func isClosed(_ *session, a answer) string {
	if a.kind != closed {
		return fmt.Sprintf("%v, where the connection's end was due", a)
	}
	return ""
}

// reply sends a message whose reply has to have n bytes of payload, or any number if n is
// negative. Another answer fails the case.
func reply(c *client.Client, m message, n int, step string, args ...any) answer {
	a := ask(c, m)
	if a.kind != answered || n >= 0 && len(a.body) != n {
		panic(stop{fmt.Errorf("%s got %v", fmt.Sprintf(step, args...), a)})
	}
	return a
}

// served wants a reply, with any content.
func served(_ *session, a answer) string {
	if a.kind != answered {
		return fmt.Sprintf("%v, where a reply was due", a)
	}
	return ""
}

var (
	refusedOrClosed  = anyOf(isClosed, isRefused)
	servedOrRefused  = anyOf(served, isRefused)
	whateverInBounds = anyOf(served, isRefused, isClosed)
)
