"""Memory that a thread uses again: each thread has its own."""

import threading

from leadline.runtime.thread_buffer import ThreadBuffer


def test_a_thread_gets_the_same_memory_again_and_another_thread_does_not() -> None:
    buffer, views = ThreadBuffer(100), list[memoryview]()
    view = buffer.view
    assert (view, len(view), view.readonly) == (buffer.view, 100, False)
    thread = threading.Thread(target=lambda: views.append(buffer.view))
    thread.start()
    thread.join()
    view[0] = 1
    assert (len(views[0]), views[0][0], buffer.view[0]) == (100, 0, 1)
