package engine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// A dispatcher remembers tasks that were released [bounds.FreeReleases] times in a row or more. The count is in the task, so one that
// has begun since learns of the task at its next release.
const (
	maxReleased    = 100
	releasedMemory = 24 * time.Hour
)

// noteReleased remembers a task that was released often.
func (d *Dispatcher) noteReleased(t *dispatch.Task, releases uint8) {
	if releases >= bounds.FreeReleases {
		d.released.Set(t.ID, t.SourceID, releasedMemory)
	}
}

// Released are tasks that may have been released [bounds.FreeReleases] times in a row or more, of the sources that of
// selects by their ids.
func (d *Dispatcher) Released(of func(source string) bool) (ids []dispatch.TaskID) {
	for id, item := range d.released.Items() {
		if of(item.Value()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ForgetReleased forgets a task that was not released again.
func (d *Dispatcher) ForgetReleased(id dispatch.TaskID) { d.released.Delete(id) }
