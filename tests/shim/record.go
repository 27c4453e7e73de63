package shim

// Recorder records what a program does with a machine that is fresh.
type Recorder struct {
	Recording Recording
	machine   *Machine
	image     *image
}

// NewRecorder begins a recording.
func NewRecorder(m *Machine) *Recorder { return &Recorder{machine: m, image: newImage(m)} }

func (r *Recorder) add(s Step) { r.Recording.Steps = append(r.Recording.Steps, s) }

func (r *Recorder) alloc(b *Buffer) {
	r.image.add(b)
	r.add(Step{Alloc: []Place{b.Place}})
}

func (r *Recorder) free(b *Buffer) {
	r.image.remove(b)
	r.add(Step{Free: []uint64{b.VA}})
}

// run runs a submission on a channel.
func (r *Recorder) run(channel int, list []Push) (err error) {
	s := Step{Channel: channel, Submit: list}
	if s.Wrote, err = r.image.changes(); err != nil {
		return err
	}
	if err := r.machine.channels[channel].Run(list); err != nil {
		s.Failed = err.Error()
		r.add(s)
		return err
	}
	s.Expected, err = r.image.changes()
	r.add(s)
	return err
}
