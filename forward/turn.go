package forward

import (
	"errors"
	"time"
)

// turnLasts is how long after its turn a request may be sent: a connection takes a moment. One that waits for longer, such as for an app
// that is away, needs another turn, or all that wait for the app would be sent at once when it is back.
const turnLasts = 250 * time.Millisecond

// mostLate bounds how often turnLasts is doubled, to more than a connection can take.
const mostLate = 6

var errLate = errors.New("the turn was over when the connection was had")

// ready waits until the app may be there and it is the request's turn. No connection is held meanwhile: the app might close it.
func (x *exchange) ready() error {
	for {
		if err := x.client.app.wait(x.Context, x.stillWanted); err != nil {
			return err
		}
		if !x.late() {
			return x.stillWanted()
		}
		if err := x.turn(x.Context); err != nil {
			return err
		}
		x.turned = time.Now()
	}
}

// late reports whether the request's turn is over. It lasts longer for one whose connection came too late: all connections may take so long.
func (x *exchange) late() bool {
	return x.turn != nil && time.Since(x.turned) > turnLasts<<x.lates
}
