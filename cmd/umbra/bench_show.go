package main

type benchShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Report to show, the JSON of a run."`
	benchOutput
}

func (c *benchShowCmd) Run(out output) error {
	r, err := readReport(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	then, err := c.before()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	return c.write(out, r, then, c.names(nil, false)) // who looks asks for no file, and may have that of another run here
}
