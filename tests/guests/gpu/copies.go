package gpu

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Copies runs cases and verifies each. The error names the first that failed.
func (e *Env) Copies(a proto.CopyArgs) (res proto.CopyResult, err error) {
	k, err := e.copier()
	if err != nil {
		return res, err
	}
	defer closeInto(k, &err)
	for i, c := range a.Cases {
		if c.Name == "" {
			c.Name = fmt.Sprintf("case %d", i)
		}
		j, planErr := plan(c, a.Seed+uint64(i)*3)
		if planErr != nil {
			return res, fmt.Errorf("%s: %w", c.Name, planErr)
		}
		out := k.run(j)
		res.Cases = append(res.Cases, out)
		if out.OK {
			res.Bytes += out.Bytes
			continue
		}
		res.Failed++
		if err == nil {
			err = fmt.Errorf("%s: %s", out.Name, out.Error)
		}
		if k.s.ch.Alive() != nil {
			err = errors.Join(err, errors.New("the channel is dead: the cases after it were not run"))
			break
		}
	}
	return res, err
}

// M2MF is Copies with M2MF's own suite unless there are cases.
func (e *Env) M2MF(a proto.CopyArgs) (proto.CopyResult, error) {
	if len(a.Cases) == 0 {
		a.Cases = m2mfSuite(a.Quick)
	}
	return e.Copies(a)
}

// CE is Copies with the suites of both copy engines unless there are cases.
func (e *Env) CE(a proto.CopyArgs) (proto.CopyResult, error) {
	if len(a.Cases) == 0 {
		a.Cases = append(ceSuite("ce0", a.Quick), ceSuite("ce1", a.Quick)...)
	}
	return e.Copies(a)
}
