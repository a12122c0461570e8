package marker

// Plain reports whether the marker is a plain up-down pattern found in the
// place of a code: it resembles what was asked for, but carries no tag.
func (f *Found) Plain() bool { return f.Fallback && !f.TagOK }

// Pair picks the two markers that bound a task from all that were found, in
// the order of their times. Everyone who trims or times a task uses it, so that
// all name the same two.
//
//   - start is the first start marker with the task's tag, and stop the last
//     stop marker with it: where a host tried again, the window holds all tries.
//   - A stop that begins before the start has ended is another task's.
//   - A marker with another tag bounds nothing.
//   - Where no start, or no stop, with the tag was found, the plain up-down
//     pattern counts in its place, see Plain.
//
// Either may be nil. A stop is picked without a start too: it times the task,
// though it cannot trim it. The pointers are into found.
func Pair(found []Found) (start, stop *Found) {
	own := func(f *Found) bool { return f.TagOK }
	for _, want := range []func(*Found) bool{own, (*Found).Plain} {
		for i := range found {
			if f := &found[i]; start == nil && f.Kind == Start && want(f) {
				start = f
			}
		}
	}
	for _, want := range []func(*Found) bool{own, (*Found).Plain} {
		for i := range found {
			f := &found[len(found)-1-i]
			if stop == nil && f.Kind == Stop && want(f) && (start == nil || f.Begin >= start.End) {
				stop = f
			}
		}
	}
	return start, stop
}
