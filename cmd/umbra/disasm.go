package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/config"
)

type disasmCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Code as the card fetches it, or its words in hexadecimal; - for standard input."`
	compileFlags
}

func (c *disasmCmd) Run(parsed *kong.Context, out output) error {
	switch given := flagsGiven(parsed); {
	case !c.IR && !c.Asm && slices.Contains(given, "block"):
		return &config.Error{Where: "--block", Reason: "only compiled code has it; add --ir or --asm"}
	case !c.Asm && slices.Contains(given, "llvm"):
		return &config.Error{Where: "--llvm", Reason: "only assembly needs it; add --asm"}
	}
	code, err := config.ReadInput(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	if isText(code) {
		if code, err = parseWords(string(code)); err != nil {
			return badFile(c.File, err)
		}
	}
	if len(code) == 0 || len(code)%4 != 0 {
		return badFile(c.File, fmt.Errorf("%d bytes: code is one or more words of 4 bytes, or of hexadecimal digits", len(code)))
	}
	w := bufio.NewWriter(out.stdout)
	if c.IR || c.Asm {
		if err := c.compiled(code, w); err != nil {
			return err
		}
		return w.Flush()
	}
	for line := range isa.Listing(code) {
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// isText reports whether data are printable. Code is not: it has zeros.
func isText(data []byte) bool {
	for _, b := range data {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return false
		}
	}
	return len(data) > 0
}

// parseWords reads words of 32 and of 64 bits, with spaces or commas between them.
func parseWords(text string) (code []byte, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) }) {
			digits := strings.TrimPrefix(strings.ToLower(word), "0x")
			v, err := strconv.ParseUint(digits, 16, 64)
			switch {
			case err != nil || len(digits) > 8 && len(digits) != 16:
				return nil, fmt.Errorf("line %d: %q is not a word; write 32 bits as up to 8 hexadecimal digits, 64 bits as 16", n, word)
			case len(digits) == 16:
				code = binary.LittleEndian.AppendUint64(code, v)
			default:
				code = binary.LittleEndian.AppendUint32(code, uint32(v))
			}
		}
	}
	return code, nil
}
