// Questions before something is changed.

import { h } from './dom.js';

// Dialog is a modal dialog; close removes it and gives the focus back to where it was.
export class Dialog {
  constructor(title, onClose = () => {}) {
    this.before = document.activeElement;
    this.body = h('div', { class: 'dialog-body', 'aria-live': 'polite' });
    this.buttons = h('div', { class: 'buttons' });
    this.node = h('dialog', { 'aria-labelledby': 'dialog-title' }, h('h2', { id: 'dialog-title' }, title), this.body, this.buttons);
    this.node.addEventListener('close', () => {
      this.node.remove();
      if (this.before?.isConnected) this.before.focus();
      onClose();
    });
    document.body.append(this.node);
  }

  open() { this.node.showModal(); }

  close() { this.node.close(); }

  // choices replaces the buttons: [text, class, onclick].
  choices(...all) {
    this.buttons.replaceChildren(...all.map(([text, kind, onclick]) => h('button', { type: 'button', class: kind, onclick }, text)));
  }
}

// destination asks where a replay goes; value() is app or stream.
export function destination() {
  const option = (value, title, words, checked) => h('label', { class: 'option' },
    h('input', { type: 'radio', name: 'to', value, checked }), h('span', {}, h('b', {}, title), h('br'), words));
  const node = h('fieldset', {}, h('legend', {}, 'Replay to'),
    option('app', 'The app', 'One request for each entry. It is gone when the app accepts it, and stored anew with the new cause when it does not.', true),
    option('stream', 'The stream', 'Published again to the original subject, for every consumer of it. It is gone when the stream confirmed it.'));
  return { node, value: () => node.querySelector('input:checked').value };
}

// ask asks for confirmation and resolves to the answer: value() on yes, undefined on no.
export function ask(title, content, [yes, kind], value = () => true) {
  return new Promise((resolve) => {
    let answer;
    const dialog = new Dialog(title, () => resolve(answer));
    dialog.body.append(...content);
    dialog.choices(
      ['Cancel', '', () => dialog.close()],
      [yes, kind, () => { answer = value(); dialog.close(); }]);
    dialog.open();
  });
}
