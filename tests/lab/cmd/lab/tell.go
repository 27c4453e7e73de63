package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

const tellUsage = `lab tell SOCKET COMMAND [ARGUMENT...]

has the agent of a guest run a command of tests/lab/proto, and prints its result as JSON.
Arguments are KEY=VALUE, or all of them one JSON object. A value is JSON if it can be, else
it is text. modprobe and rmmod take the module's name alone as well.

	lab tell a.agent.sock modprobe nouveau
	lab tell a.agent.sock fences count=200
	lab tell a.agent.sock modprobe '{"name":"nouveau","options":["config=NvMSI=0"]}'
`

// patience is how long a guest may take to boot.
const patience = 2 * time.Minute

// plain is the argument of a command that may be given without its key.
var plain = map[string]string{proto.CmdModprobe: "name", proto.CmdRmmod: "name"}

func tell(ctx context.Context, out, progress io.Writer, words []string) error {
	for _, w := range words {
		if w == "-h" || w == "--help" {
			_, err := fmt.Fprint(out, tellUsage)
			return err
		}
	}
	if len(words) < 2 {
		return fmt.Errorf("tell: say the agent's socket and a command, such as: lab tell a.agent.sock ping")
	}
	socket, cmd := words[0], words[1]
	args, err := arguments(cmd, words[2:])
	if err != nil {
		return fmt.Errorf("tell: %w", err)
	}
	result, err := lab.Tell(ctx, socket, cmd, args, patience, progress)
	if len(result) > 0 {
		fmt.Fprintf(out, "%s\n", result)
	}
	return err
}

// arguments is nil, for none, or marshals to an object.
func arguments(cmd string, words []string) (any, error) {
	if len(words) == 0 {
		return nil, nil
	}
	if strings.HasPrefix(words[0], "{") {
		if len(words) > 1 {
			return nil, fmt.Errorf("%q: behind a JSON object, which has all arguments, nothing may follow", words[1])
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(words[0]), &object); err != nil {
			return nil, fmt.Errorf("%q is not a JSON object: %w", words[0], err)
		}
		return object, nil
	}
	args := make(map[string]any)
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			if plain[cmd] == "" {
				return nil, fmt.Errorf("%q: %s takes KEY=VALUE, or a JSON object; tests/lab/proto has the keys", w, cmd)
			}
			key, value = plain[cmd], w
		}
		if _, twice := args[key]; twice {
			return nil, fmt.Errorf("%q: there is a %s already", w, key)
		}
		if raw := []byte(value); ok && json.Valid(raw) {
			args[key] = json.RawMessage(bytes.TrimSpace(raw))
		} else {
			args[key] = value
		}
	}
	return args, nil
}
