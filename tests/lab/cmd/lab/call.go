package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

const callUsage = `lab call SOCKET COMMAND [KEY=VALUE... | JSON]

runs a command of tests/lab/proto in a guest, and prints its result as JSON. A value
that is not JSON is text. modprobe and rmmod also take the module's name alone.

	lab call a.agent.sock modprobe nouveau
	lab call a.agent.sock fences count=200
	lab call a.agent.sock modprobe '{"name":"nouveau","options":["config=NvMSI=0"]}'
`

// bootWait is how long a guest may take to boot.
const bootWait = 4 * time.Minute

func call(ctx context.Context, out io.Writer, words []string) error {
	if len(words) < 2 || strings.HasPrefix(words[0], "-") {
		_, err := fmt.Fprint(out, callUsage)
		return err
	}
	args, err := arguments(words[1], words[2:])
	if err != nil {
		return err
	}
	result, err := lab.CallSocket(ctx, words[0], words[1], args, bootWait)
	if len(result) > 0 {
		fmt.Fprintf(out, "%s\n", result)
	}
	return err
}

// arguments is the JSON object of a command's arguments, or nil.
func arguments(cmd string, words []string) (any, error) {
	switch {
	case len(words) == 0:
		return nil, nil
	case len(words) == 1 && strings.HasPrefix(words[0], "{"):
		return json.RawMessage(words[0]), nil
	case len(words) == 1 && !strings.Contains(words[0], "=") && (cmd == proto.CmdModprobe || cmd == proto.CmdRmmod):
		return proto.ModprobeArgs{Name: words[0]}, nil
	}
	args := make(map[string]any)
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("argument %q: want KEY=VALUE", w)
		}
		args[key] = value
		if json.Valid([]byte(value)) {
			args[key] = json.RawMessage(value)
		}
	}
	return args, nil
}
