package firmware

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Show writes img for a person to read: a summary, the images of the file, the
// BIT's tokens, every structure field by field, the init scripts, the data that
// is not understood, and the warnings. Offsets are file offsets.
func Show(w io.Writer, img *Image) error {
	var buf bytes.Buffer
	showSummary(&buf, img)
	showParts(&buf, img.Parts)
	showTokens(&buf, img)
	for _, s := range img.Structures {
		showStructure(&buf, s)
	}
	for _, s := range img.Scripts {
		showScript(&buf, img.Data, s)
	}
	showRaw(&buf, img.Tokens)
	showWarnings(&buf, img.Warnings)
	_, err := w.Write(buf.Bytes())
	return err
}

// columns writes rows of tab-separated cells as aligned columns, indented.
func columns(w io.Writer, rows ...string) {
	var buf bytes.Buffer
	tw := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, r)
	}
	tw.Flush()
	for line := range strings.Lines(buf.String()) {
		fmt.Fprintf(w, "  %s\n", strings.TrimRight(line, " \n"))
	}
}

func showSummary(w io.Writer, img *Image) {
	first := img.Parts[0]
	fmt.Fprintln(w, "VBIOS")
	columns(w,
		fmt.Sprintf("for\t%04x:%04x, class %06x (%s)", first.Vendor, first.Device, first.Class, className(uint64(first.Class))),
		"version\t"+cmp.Or(img.Version, "unknown"),
		fmt.Sprintf("size\t0x%06x (%d bytes)", img.Size, img.Size),
		fmt.Sprintf("sha256\t%x", []byte(img.SHA256)),
		fmt.Sprintf("warnings\t%d", len(img.Warnings)),
	)
}

func showParts(w io.Writer, parts []Part) {
	fmt.Fprintln(w, "\nImages")
	rows := []string{"offset\tsize\tdevice\tcode\tchecksum\t"}
	for _, p := range parts {
		checksum := "-"
		if p.checked() {
			checksum = "good"
			if p.Checksum != 0 {
				checksum = fmt.Sprintf("bad, sum is %02x", p.Checksum)
			}
		}
		last := ""
		if p.Last {
			last = "last"
		}
		rows = append(rows, fmt.Sprintf("%06x\t%06x\t%04x:%04x\t%02x %s\t%s\t%s",
			p.Offset, p.Size, p.Vendor, p.Device, p.CodeType, codeTypeName(uint64(p.CodeType)), checksum, last))
	}
	columns(w, rows...)
}

func showTokens(w io.Writer, img *Image) {
	if len(img.Tokens) == 0 {
		return
	}
	fmt.Fprintf(w, "\nBIOS Information Table at %06x\n", img.BIT)
	rows := []string{"token\tversion\toffset\tsize\tholds\t"}
	for _, t := range img.Tokens {
		note := ""
		if !t.Decoded {
			note = "raw"
		}
		rows = append(rows, fmt.Sprintf("%q\t%d\t%06x\t%04x\t%s\t%s", t.ID, t.Version, t.Offset, t.Size, t.Name, note))
	}
	columns(w, rows...)
}

// maxNone is how many null pointers of one structure get a line each.
const maxNone = 10

func showStructure(w io.Writer, s Structure) {
	fmt.Fprintf(w, "\n%s at %06x, 0x%02x bytes\n", s.Name, s.Offset, s.Size)
	rows := make([]string, 0, len(s.Fields))
	none := 0
	for _, f := range s.Fields {
		if f.isPtr && f.Value == 0 {
			none++
		}
	}
	for _, f := range s.Fields {
		if f.isPtr && f.Value == 0 && none > maxNone {
			continue
		}
		where := fmt.Sprintf("%06x", s.Offset+f.Offset)
		if f.Bits != "" {
			where += " [" + f.Bits + "]"
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", where, f.Hex, f.Name, f.Text, f.Meaning))
	}
	columns(w, rows...)
	if none > maxNone {
		fmt.Fprintf(w, "  %d pointers are 0: none of these tables is there\n", none)
	}
}

func showScript(w io.Writer, data []byte, s Script) {
	fmt.Fprintf(w, "\nInit %s at %06x, 0x%02x bytes\n", s.Name, s.Offset, len(s.Code))
	rows := make([]string, 0, len(s.Instructions))
	for _, in := range s.Instructions {
		rows = append(rows, fmt.Sprintf("%06x\t%02x\t%s\t%s", in.Offset, data[in.Offset], in.Name, in.Text))
	}
	columns(w, rows...)
}

// showRaw dumps the tokens that are not understood.
func showRaw(w io.Writer, tokens []Token) {
	for _, t := range tokens {
		if t.Decoded || len(t.Data) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nBIT %q version %d at %06x, 0x%02x bytes, not decoded\n", t.ID, t.Version, t.Offset, t.Size)
		for at := 0; at < len(t.Data); at += 16 {
			fmt.Fprintf(w, "  %06x  % x\n", t.Offset+at, []byte(t.Data[at:min(at+16, len(t.Data))]))
		}
	}
}

func showWarnings(w io.Writer, warnings []*Error) {
	if len(warnings) == 0 {
		return
	}
	fmt.Fprintln(w, "\nWarnings")
	for _, warning := range warnings {
		fmt.Fprintf(w, "  %s\n", warning.text())
	}
}
