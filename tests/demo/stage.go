package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// guest is the program in a virtual machine.
type guest interface {
	Call(ctx context.Context, cmd string, args, result any) error
}

// stage is where checks are made, and who is told of them. It belongs to one
// goroutine; those that together starts have ended when it returns.
type stage struct {
	ctx context.Context
	p   *printer
	out *outcome
}

// check makes one check and says what came of it.
func (s *stage) check(name string, f func(c *check)) bool {
	return s.together([]string{name}, func(_ int, c *check) { f(c) })
}

// together makes checks at the same time, and says what came of each as soon as it
// is known.
func (s *stage) together(names []string, f func(i int, c *check)) bool {
	checks := make([]check, len(names))
	done := make(chan *check)
	for i, name := range names {
		c := &checks[i]
		c.Name = name
		go func() {
			began := time.Now()
			f(i, c)
			c.Took = time.Since(began)
			done <- c
		}()
	}
	held := true
	for left := slices.Clone(names); len(left) > 0; {
		s.p.waiting(strings.Join(left, ", "))
		c := <-done
		left = slices.DeleteFunc(left, func(name string) bool { return name == c.Name })
		c.OK = len(c.Problems) == 0
		if c.Stopped = !c.OK && interrupted(s.ctx); c.Stopped {
			c.Problems = nil // of the interruption
		}
		held = held && c.OK
		s.p.check(c)
	}
	s.out.Checks = append(s.out.Checks, checks...)
	return held
}

// notRun notes checks that cannot be made any more.
func (s *stage) notRun(names ...string) {
	for _, name := range names {
		s.out.Checks = append(s.out.Checks, check{Name: name, NotRun: true})
	}
}

// ask asks the guest. What it says is a problem of the check.
func (s *stage) ask(c *check, g guest, cmd string, args, result any) {
	if err := g.Call(s.ctx, cmd, args, result); err != nil {
		var refused *lab.CallError
		if errors.As(err, &refused) {
			c.fail("the guest says: %s", refused.Message)
			return
		}
		c.fail("%v", err)
	}
}

// kernelLog is what the guest's kernel said after a mark.
func (s *stage) kernelLog(c *check, g guest, mark uint64) []lab.LogLine {
	var out []lab.LogLine
	args := proto.KmsgArgs{AfterSeq: &mark}
	for {
		var k proto.KmsgResult
		s.ask(c, g, proto.CmdKmsg, args, &k)
		for _, l := range k.Records {
			out = append(out, lab.LogLine{
				Level: lab.Level(l.Level), Facility: l.Facility,
				Time: time.Duration(l.USec) * time.Microsecond, Text: l.Text,
			})
		}
		if !k.More || len(k.Records) == 0 {
			return out
		}
		args.AfterSeq = &k.Records[len(k.Records)-1].Seq
	}
}
