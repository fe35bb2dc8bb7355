// Negative control: takes libstdc++ from the machine it runs on.
#include <iostream>
int main() { std::cout << "hello\n"; }
