package firmware

// Image is a parsed file: one or more ROM images and what the BIOS
// Information Table of the first leads to.
type Image struct {
	Data        []byte      `json:"-"` // the file
	Size        int         `json:"size"`
	SHA256      HexBytes    `json:"sha256"`
	Parts       []Part      `json:"parts"`
	Description Description `json:"description"` // what Build takes
	Tokens      []Token     `json:"tokens"`      // in the order of the file
	Scripts     []Script    `json:"scripts"`
	Structures  []Structure `json:"structures"` // everything decoded, in the order it was met
	Warnings    []Warning   `json:"warnings"`
}

// Part is one ROM image of the file.
type Part struct {
	Offset   int       `json:"offset"`
	Size     int       `json:"size"`
	Header   ROMHeader `json:"header"`
	PCIR     PCIR      `json:"pcir"`
	NPDE     *NPDE     `json:"npde,omitempty"`
	Last     bool      `json:"last"`
	Checksum uint8     `json:"checksum"` // sum of all bytes; 0 is good
}

// checked reports whether the part's bytes have to add up to 0.
func (p *Part) checked() bool { return p.PCIR.CodeType == CodeX86 }

// Token is one entry of the BIT.
type Token struct {
	ID      uint8    `json:"id"`
	Version uint8    `json:"version"`
	Offset  int      `json:"offset"` // of the data, in the file
	Size    int      `json:"size"`
	Name    string   `json:"name"`    // what the letter stands for, if known
	Decoded bool     `json:"decoded"` // false: only the raw data is known
	Data    HexBytes `json:"data"`
}

// Structure is one structure of the file, field by field.
type Structure struct {
	Name   string  `json:"name"`
	Offset int     `json:"offset"`
	Size   int     `json:"size"`
	Fields []Field `json:"fields"`
}

// Field is one decoded field of a structure.
type Field struct {
	Offset  int    `json:"offset"` // from the structure's start
	Width   int    `json:"width"`  // bytes
	Bits    string `json:"bits,omitempty"`
	Name    string `json:"name"`
	Value   uint64 `json:"value"`
	Hex     string `json:"hex,omitempty"`
	Text    string `json:"text,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	isPtr   bool
}
